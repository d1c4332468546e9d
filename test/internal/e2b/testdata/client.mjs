// What E2B's own client does in a sandbox, with its usual options: a line for each answer.
import { createRequire } from 'node:module'
const { Sandbox, CommandExitError } = createRequire(process.argv[2] + '/node_modules/')('e2b')
const say = (...words) => console.log(words.map((w) => (typeof w === 'string' ? w : JSON.stringify(w))).join(' '))

const box = await Sandbox.create({ timeoutMs: 60000, metadata: { run: 'r 1', 'a.b': 'x&y' } })
say('created', await box.isRunning())
await box.files.write('dir/hello.txt', 'héllo\n')
say('read', await box.files.read('dir/hello.txt'))
say('listed', (await box.files.list('dir')).map((e) => e.name))
let streamed = ''
const done = await box.commands.run('echo out; echo err >&2; cat dir/hello.txt; echo $A', { envs: { A: 'b' }, onStdout: (s) => { streamed += s } })
say('ran', done.exitCode, done.stdout, done.stderr, streamed === done.stdout)
try {
  await box.commands.run('exit 7')
} catch (e) {
  say('failed', e instanceof CommandExitError, e.exitCode)
}
const cat = await box.commands.run('cat', { background: true, stdin: true })
await box.commands.sendStdin(cat.pid, 'typed\n')
await box.commands.closeStdin(cat.pid)
say('typed', (await cat.wait()).stdout)
const sleep = await box.commands.run('sleep 60', { background: true })
say('processes', (await box.commands.list()).some((p) => p.pid === sleep.pid))
say('killed', await box.commands.kill(sleep.pid))
const big = await box.commands.run('head -c 300000 /dev/zero | tr "\\0" x')
say('big', big.stdout.length)
let shown = ''
const terminal = await box.pty.create({ cols: 70, rows: 20, onData: (d) => { shown += new TextDecoder().decode(d) } })
await box.pty.resize(terminal.pid, { cols: 71, rows: 21 })
await box.pty.sendInput(terminal.pid, new TextEncoder().encode('echo si$(stty size); exit\n'))
await terminal.wait()
say('terminal', shown.includes('si21 71'))
try {
  await box.files.read('absent')
} catch (e) {
  say('absent', e.constructor.name)
}
await box.setTimeout(120000)
const found = await Sandbox.list({ query: { metadata: { run: 'r 1', 'a.b': 'x&y' }, state: ['running'] } }).nextItems()
say('found', found.length === 1 && found[0].sandboxId === box.sandboxId, found[0].metadata)
say('others', (await Sandbox.list({ query: { metadata: { run: 'r2' } } }).nextItems()).length)
const again = await Sandbox.connect(box.sandboxId)
say('connected', (await again.commands.run('cat dir/hello.txt')).stdout)
say('paused', await box.pause())
say('resumed', (await (await Sandbox.connect(box.sandboxId)).commands.run('cat dir/hello.txt')).stdout)
say('ended', await box.kill(), await Sandbox.kill(box.sandboxId))
try {
  await Sandbox.create({ apiKey: 'e2b_ff' })
} catch (e) {
  say('wrong key', e.constructor.name)
}
