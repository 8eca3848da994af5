// Drives the client for the conformance suite: a command a line, an answer a line.
import { createInterface } from "node:readline"
import { Client } from "./spillway.js"

let client
for await (const line of createInterface({ input: process.stdin })) {
  const c = JSON.parse(line)
  let answer = {}
  if (c.op === "open") {
    const o = c.options
    client = new Client(c.url, {
      token: o.token, batch: o.batch, queue: o.queue, linger: o.linger, maxAge: o.max_age, timeout: o.timeout, attempts: o.attempts,
      backoffBase: o.backoff_base, backoffMax: o.backoff_max, breakAfter: o.break_after, probeEvery: o.probe_every,
    })
  } else if (c.op === "report") client.report(c.partition, new Uint8Array(Buffer.from(c.payload, "base64")))
  else if (c.op === "flush") answer = { ok: await client.flush(c.timeout) }
  else if (c.op === "close") answer = { ok: await client.close(c.timeout) }
  else if (c.op === "counts") {
    const s = client.stats()
    answer = { reported: s.reported, acked: s.acked + s.handed, pending: s.pending, dropped: s.dropped }
  }
  if (c.op !== "report") process.stdout.write(JSON.stringify(answer) + "\n")
}
process.exit(0)
