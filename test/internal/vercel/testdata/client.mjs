// What Vercel's own client does with a sandbox, with its usual options: a line for each answer.
import { pathToFileURL } from 'node:url'
const { Sandbox } = await import(pathToFileURL(process.argv[2] + '/node_modules/@vercel/sandbox/dist/index.js'))
const say = (...words) => console.log(words.map((w) => (typeof w === 'string' ? w : JSON.stringify(w))).join(' '))

// Its calls go to another address than its own.
const by = { fetch: (url, init) => fetch(String(url).replace('https://vercel.com/api', process.env.VERCEL_API_URL), { ...init, dispatcher: undefined }) }
const box = await Sandbox.create({ name: 'my-sandbox', timeout: 60000, networkPolicy: { allow: ['example.com'] }, ...by })
say('created', box.name)
await box.writeFiles([{ path: 'dir/hello.txt', content: Buffer.from('héllo\n'), mode: 0o600 }])
say('read', (await box.readFileToBuffer({ path: 'dir/hello.txt' })).toString())
say('absent', await box.readFileToBuffer({ path: 'absent' }))
const done = await box.runCommand({ cmd: '/bin/sh', args: ['-c', 'echo out; echo err >&2; cat dir/hello.txt; stat -c %a dir/hello.txt; echo $A'], env: { A: 'b' } })
say('ran', done.exitCode, await done.stdout(), await done.stderr())
say('failed', (await box.runCommand('/bin/sh', ['-c', 'exit 7'])).exitCode)
const big = await box.runCommand('/bin/sh', ['-c', 'head -c 300000 /dev/zero | tr "\\0" x'])
say('big', (await big.stdout()).length)
const sleep = await box.runCommand({ cmd: 'sleep', args: ['600'], detached: true })
await sleep.kill('SIGKILL')
say('killed', (await sleep.wait()).exitCode)
await box.extendTimeout(60000)
say('extended', box.currentSession().timeout)
await Sandbox.create({ name: 'my-other', ...by })
await Sandbox.create({ name: 'others', ...by })
say('found', (await (await Sandbox.list({ namePrefix: 'my-', sortBy: 'name', ...by })).toArray()).map((s) => s.name))
try {
  await Sandbox.create({ name: 'my-sandbox', ...by })
} catch (e) {
  say('twice', e.constructor.name, e.response.status)
}
await box.stop()
const stopped = await Sandbox.get({ name: 'my-sandbox', ...by })
say('stopped', stopped.status)
say('resumed', (await stopped.readFileToBuffer({ path: 'dir/hello.txt' })).toString())
for (const name of ['my-sandbox', 'my-other', 'others']) await (await Sandbox.get({ name, ...by })).delete()
try {
  await Sandbox.get({ name: 'my-sandbox', ...by })
} catch (e) {
  say('gone', e.constructor.name, e.response.status)
}
try {
  await Sandbox.list({ token: 'wrong', teamId: 'team_1', projectId: 'prj_1', ...by })
} catch (e) {
  say('wrong token', e.response.status)
}
process.exit(0)
