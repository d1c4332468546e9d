// What Sprites' own client does with a sprite, with its usual options: a line for each answer.
import { pathToFileURL } from 'node:url'
const { SpritesClient } = await import(pathToFileURL(process.argv[2] + '/node_modules/@fly/sprites/dist/index.js'))
const say = (...words) => console.log(words.map((w) => (typeof w === 'string' ? w : JSON.stringify(w))).join(' '))

const client = new SpritesClient(process.env.SPRITES_TOKEN, { baseURL: process.env.SPRITES_API_URL })
const sprite = await client.createSprite('my-sprite')
say('created', sprite.name, sprite.status)
await sprite.updateNetworkPolicy({ rules: [{ domain: '*', action: 'deny' }, { domain: 'example.com', action: 'allow' }] })
say('policy', await sprite.getNetworkPolicy())
const fs = sprite.filesystem(process.argv[3])
await fs.writeFile('dir/hello.txt', 'héllo\n', { mode: 0o600 })
say('read', await fs.readFile('dir/hello.txt', 'utf8'))
say('listed', await fs.readdir('dir'))
const done = await sprite.execFile('/bin/sh', ['-c', 'echo out; echo err >&2; cat dir/hello.txt; stat -c %a dir/hello.txt; echo $A'], { cwd: process.argv[3], env: { A: 'b', PATH: process.env.PATH } })
say('ran', done.exitCode, done.stdout, done.stderr)
try {
  await sprite.execFile('/bin/sh', ['-c', 'exit 7'])
} catch (e) {
  say('failed', e.constructor.name, e.exitCode)
}
const cat = sprite.spawn('cat', [])
let typed = ''
cat.stdout.on('data', (b) => { typed += b })
await new Promise((done) => cat.once('spawn', done))
cat.stdin.end('typed\n')
say('typed', await cat.wait(), typed)
const big = await sprite.execFile('/bin/sh', ['-c', 'head -c 300000 /dev/zero | tr "\\0" x'])
say('big', big.stdout.length)
const sleep = sprite.spawn('sleep', ['600'])
await new Promise((done) => sleep.once('spawn', done))
let sessions = []
while (sessions.length === 0) sessions = await sprite.listSessions()
say('sessions', sessions.length, sessions[0].isActive)
for await (const event of await sprite.killSession(sessions[0].id, 'KILL')) say('killed', event.type)
say('slept', await sleep.wait())
try {
  await fs.readFile('absent')
} catch (e) {
  say('absent', e.constructor.name, e.code)
}
await client.createSprite('my-other')
await client.createSprite('others')
say('found', (await client.listAllSprites('my-')).map((s) => s.name))
try {
  await client.createSprite('my-sprite')
} catch (e) {
  say('twice', e.constructor.name, e.statusCode)
}
for (const name of ['my-sprite', 'my-other', 'others']) await client.deleteSprite(name)
try {
  await client.getSprite('my-sprite')
} catch (e) {
  say('gone', e.constructor.name, e.statusCode)
}
try {
  await new SpritesClient('wrong', { baseURL: process.env.SPRITES_API_URL }).listSprites()
} catch (e) {
  say('wrong token', e.statusCode)
}
process.exit(0)
