// What Daytona's own client does in a sandbox, with its usual options: a line for each answer.
import { createRequire } from 'node:module'
const { Daytona } = createRequire(process.argv[2] + '/node_modules/')('@daytona/sdk')
const say = (...words) => console.log(words.map((w) => (typeof w === 'string' ? w : JSON.stringify(w))).join(' '))

const daytona = new Daytona()
const box = await daytona.create({ labels: { run: 'r 1', 'a.b': 'x&y' } })
say('created', box.state)
await box.fs.uploadFile(Buffer.from('héllo\n'), 'dir/hello.txt')
say('read', (await box.fs.downloadFile('dir/hello.txt')).toString())
const done = await box.process.executeCommand('cat dir/hello.txt; exit 7')
say('ran', done.exitCode, done.result)
await box.process.createSession('s')
const begun = await box.process.executeSessionCommand('s', { command: 'read w; echo "got $w"; echo err >&2; exit 3', runAsync: true, suppressInputEcho: true })
await box.process.sendSessionCommandInput('s', begun.cmdId, 'typed')
let out = ''
let err = ''
await box.process.getSessionCommandLogs('s', begun.cmdId, (t) => { out += t }, (t) => { err += t })
say('streamed', out, err, (await box.process.getSessionCommand('s', begun.cmdId)).exitCode)
await box.process.deleteSession('s')
const found = []
for await (const one of daytona.list({ labels: { run: 'r 1', 'a.b': 'x&y' } })) found.push(one.id)
say('found', found.length === 1 && found[0] === box.id)
await box.stop()
say('stopped', (await daytona.get(box.id)).state)
await box.start()
say('started', box.state, (await box.fs.downloadFile('dir/hello.txt')).toString())
await box.delete()
try {
  await daytona.get(box.id)
} catch (e) {
  say('gone', e.constructor.name)
}
try {
  await new Daytona({ apiKey: 'wrong' }).create()
} catch (e) {
  say('wrong key', e.statusCode)
}
process.exit(0)
