// Drives the client for the conformance suite: a command a line, an answer a line. Node runs
// it as a program; a page calls drive.
import { Client } from "./spillway.js"

let client

export async function drive(line) {
  const c = JSON.parse(line), o = c.options
  if (c.op === "report") return void client.report(c.partition, Uint8Array.from(atob(c.payload), char => char.charCodeAt(0)), c.at ? { at: c.at } : {})
  if (c.op === "flush") return { ok: await client.flush(c.timeout) }
  if (c.op === "close") return { ok: await client.close(c.timeout) }
  if (c.op === "counts") {
    const s = client.stats()
    return { reported: s.reported, acked: s.acked + s.handed, pending: s.pending, dropped: s.dropped }
  }
  client = new Client(c.url, {
    token: o.token, batch: o.batch, queue: o.queue, linger: o.linger, maxAge: o.max_age, timeout: o.timeout, attempts: o.attempts,
    backoffBase: o.backoff_base, backoffMax: o.backoff_max, breakAfter: o.break_after, probeEvery: o.probe_every, keyWindow: o.key_window,
  })
  return {}
}

if (globalThis.process) {
  const { createInterface } = await import("node:readline")
  for await (const line of createInterface({ input: process.stdin })) {
    const answer = await drive(line)
    if (answer) process.stdout.write(JSON.stringify(answer) + "\n")
  }
  process.exit(0)
}
