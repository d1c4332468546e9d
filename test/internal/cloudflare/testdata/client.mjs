// What a client of Cloudflare's bridge does with a sandbox, with its usual options: a line for each answer.
import { pathToFileURL } from 'node:url'
const { CloudflareSandboxClient } = await import(pathToFileURL(process.argv[2] + '/node_modules/@openai/agents-extensions/dist/sandbox/cloudflare/index.mjs'))
const say = (...words) => console.log(words.map((w) => (typeof w === 'string' ? w : JSON.stringify(w))).join(' '))

const options = { workerUrl: process.env.CLOUDFLARE_SANDBOX_URL, apiKey: process.env.SANDBOX_API_KEY }
const box = await new CloudflareSandboxClient(options).create()
say('running', await box.running())
await box.materializeEntry({ path: 'dir/hello.txt', entry: { type: 'file', content: 'héllo\n' } })
say('read', new TextDecoder().decode(await box.readFile({ path: 'dir/hello.txt' })))
const done = await box.execShell('cd /workspace && echo out && cat dir/hello.txt && echo err >&2; exit 7')
say('ran', done.exitCode, done.output)
say('there', await box.pathExists('dir/hello.txt'))
say('absent', await box.pathExists('absent'))
say('big', (await box.execShell('head -c 300000 /dev/zero | tr "\\0" x')).stdout.length)
await box.delete()
try {
  await new CloudflareSandboxClient({ ...options, apiKey: 'wrong' }).create()
} catch (e) {
  say('wrong key', e.constructor.name)
}
process.exit(0)
