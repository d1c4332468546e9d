#!/usr/bin/env node
// Starts the program of this system, which comes as a package of its own, and ends as it does.
'use strict'
const { spawn } = require('child_process')
const os = require('os')

const name = `@pccrun/${process.platform}-${process.arch}`
let program
try {
  program = require.resolve(`${name}/pccrun`)
} catch {
  console.error(`pccrun: there is no package ${name}\nhint: npm install without --omit=optional; Linux and macOS on x64 and arm64 have one`)
  process.exit(125)
}
const child = spawn(program, process.argv.slice(2), { stdio: 'inherit' })
// A terminal signals both. What is sent to this process alone is passed on.
for (const signal of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2']) process.on(signal, () => child.kill(signal))
child.on('error', (error) => {
  console.error(`pccrun: ${error.message}`)
  process.exit(125)
})
child.on('exit', (code, signal) => {
  if (!signal) process.exit(code)
  for (const name of ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGQUIT', 'SIGUSR1', 'SIGUSR2']) process.removeAllListeners(name)
  process.kill(process.pid, signal)
  setTimeout(() => process.exit(128 + (os.constants.signals[signal] || 0)), 1000)
})
