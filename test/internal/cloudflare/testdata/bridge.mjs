// The bridge of Cloudflare's own package, on this machine: its routes and its pool are as they came, and of a sandbox there is as
// much as they call, which executes in a directory of its own. It prints its port.
import { registerHooks } from 'node:module'
import { createServer } from 'node:http'
import { spawn } from 'node:child_process'
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { pathToFileURL } from 'node:url'

const [, , modules, top] = process.argv
console.log = console.info = () => {}
const workers = 'data:text/javascript,' + encodeURIComponent(`
export class DurableObject { constructor(ctx, env) { this.ctx = ctx; this.env = env } }
export class WorkerEntrypoint extends DurableObject {}
export class RpcTarget {}
export class RpcStub {}
export const env = { Sandbox: {}, WarmPool: {}, SANDBOX_API_KEY: 'one' }, tracing = undefined, exports = {}`)
registerHooks({
  resolve: (name, context, next) => {
    if (name === 'cloudflare:workers') return { url: workers, shortCircuit: true }
    try {
      return next(name, context)
    } catch {
      return next(name + '.js', context) // as bundlers do
    }
  },
})
const { bridge, WarmPool } = await import(pathToFileURL(modules + '/node_modules/@cloudflare/sandbox/dist/bridge/index.js'))

class Sandbox {
  constructor(name) {
    this.dir = `${top}/${name}`
  }
  there(text) {
    return text.replaceAll('/workspace', this.dir)
  }
  async startAndWaitForPorts() {
    mkdirSync(this.dir)
  }
  async getState() {
    return { status: existsSync(this.dir) ? 'running' : 'stopped' }
  }
  async destroy() {
    rmSync(this.dir, { recursive: true, force: true })
  }
  async execWithSessionToken(command, _, { onOutput, onComplete }) {
    const child = spawn('bash', ['-c', this.there(command)], { cwd: this.dir, stdio: ['ignore', 'pipe', 'pipe'] })
    for (const stream of ['stdout', 'stderr']) child[stream].setEncoding('utf8').on('data', (text) => onOutput(stream, text))
    child.on('close', (exitCode) => onComplete({ exitCode }))
  }
  async writeFile(path, text, { encoding }) {
    writeFileSync(this.there(path), Buffer.from(text, encoding))
  }
  async readFileStream(path) {
    if (!existsSync(this.there(path))) throw Object.assign(new Error('no such file'), { code: 'FILE_NOT_FOUND' })
    const bytes = readFileSync(this.there(path))
    const events = [
      { type: 'metadata', mimeType: 'application/octet-stream', size: bytes.length, isBinary: true, encoding: 'base64' },
      { type: 'chunk', data: bytes.toString('base64') },
      { type: 'complete', bytesRead: bytes.length },
    ]
    return new Blob(events.map((e) => `data: ${JSON.stringify(e)}\n\n`)).stream()
  }
}

// All else that is asked of a sandbox it answers with nothing.
const sandboxes = new Map()
const get = (name) => {
  if (!sandboxes.has(name)) {
    const rest = { get: (box, key) => (key === 'then' ? undefined : typeof box[key] === 'function' ? box[key].bind(box) : (box[key] ?? (async () => {}))) }
    sandboxes.set(name, new Proxy(new Sandbox(name), rest))
  }
  return sandboxes.get(name)
}
const stored = new Map()
const storage = {
  get: async (key) => stored.get(key),
  put: async (key, value) => void stored.set(key, value),
  delete: async (key) => stored.delete(key),
  getAlarm: async () => 1,
  setAlarm: async () => {},
}
const env = { SANDBOX_API_KEY: process.env.SANDBOX_API_KEY, Sandbox: { idFromName: (name) => name, get } }
const pool = new WarmPool({ storage, waitUntil: () => {} }, env)
env.WarmPool = { idFromName: (name) => name, get: () => pool }

const worker = bridge({})
const server = createServer(async (request, response) => {
  const body = []
  for await (const part of request) body.push(part)
  const about = { method: request.method, headers: request.headers, body: body.length ? Buffer.concat(body) : undefined }
  const answer = await worker.fetch(new Request(`http://localhost${request.url}`, about), env, { waitUntil: () => {} })
  response.writeHead(answer.status, Object.fromEntries(answer.headers))
  for await (const part of answer.body ?? []) response.write(part)
  response.end()
})
server.listen(0, '127.0.0.1', () => process.stdout.write(server.address().port + '\n'))
process.stdin.on('end', () => process.exit(0)).resume()
