// Drives the client for the conformance suites: a command a line, an answer a line. Node runs
// it as a program; a page, which has no queues, calls drive.
import { Reporter } from "./reporter.js"

const bytes = text => Uint8Array.from(atob(text), char => char.charCodeAt(0))
const shown = ({ payload, ...job }) => ({ ...job, payload: payload.toString("base64") })
const camel = options => Object.fromEntries(Object.entries(options ?? {}).map(([name, v]) => [name.replace(/_(.)/g, (_, c) => c.toUpperCase()), v]))

let all, reporter, queues, worker, ended, calls, now

const commands = {
  open({ url }, { throwHooks, ...o }) {
    if (throwHooks) for (const what of ["drop", "error"]) {
      let n = 0
      o[what === "drop" ? "onDrop" : "onError"] = () => {
        console.error(`${what}_hook ${++n}`)
        throw new Error(`fault ${n} of ${what}_hook`)
      }
    }
    reporter = new Reporter(url, o)
  },
  report({ partition, payload, at }) { reporter.report(partition, bytes(payload), at ? { at } : {}) },
  flush: async ({ timeout }) => ({ ok: await reporter.flush(timeout) }),
  close: async ({ timeout }) => ({ ok: await reporter.close(timeout) }),
  counts({ queue }) {
    if (queue) return queues.counts(queue)
    const s = reporter.stats()
    return { reported: s.reported, acked: s.acked + s.handed, pending: s.pending, dropped: s.dropped }
  },
  async queues({ url }, o) {
    all = await import("./spillway.js")
    queues = new all.Queues(url, o)
  },
  publish: ({ queue, payloads }, o) => payloads.length === 1 ? queues.publish(queue, bytes(payloads[0]), o) : queues.publishMany(queue, payloads.map(bytes), o),
  claim: async c => ({ jobs: (await queues.claim(c.queues, camel(c.options))).map(shown) }),
  settle: ({ do: act, ms, error, progress, note, result, ...job }) => queues[act](job, ...{ ack: [result], nack: [ms, error], bury: [error], touch: [ms], progress: [progress, note, { ttr: ms }] }[act] ?? []),
  get: async ({ queue, id }, { wait }) => ({ jobs: [shown(await (wait ? queues.wait(queue, id, wait) : queues.get(queue, id)))] }),
  delete: ({ queue, id }) => queues.delete(queue, id),
  work(c, { noHook, throwHooks, ...o }) {
    const hook = (count, name) => async () => {
      now[count]++
      if (throwHooks) throw new Error(`fault ${now[count]} of ${name}`)
    }
    calls = {}
    now = { running: 0, most: 0, errors: 0, request_errors: 0, handled: [] }
    worker = new all.Worker(queues, c.queues, handle, { ...o, onError: hook("errors", "job_hook"), onRequestError: noHook ? null : hook("request_errors", "claim_hook") })
    ended = worker.run()
    ended.catch(() => { }) // until it is asked for
  },
  worked: () => now,
  stop: () => worker.stop(),
  wait: () => ended,
}

async function handle(job, signal) {
  const act = job.json()
  now.most = Math.max(now.most, ++now.running)
  calls[job.id] = (calls[job.id] ?? 0) + 1
  try {
    return await acts[calls[job.id] > act.attempts ? "ok" : act.do](act, signal)
  } finally {
    now.running--
    now.handled.push({ queue: job.queue, id: job.id, attempt: job.attempt, cause: signal.reason?.kind ?? "" })
  }
}

const acts = {
  ok() { },
  result: () => ({ done: true }),
  bad_result: () => ({ n: 1n }),
  big_result: () => "x".repeat(5000),
  fail() { throw new Error("as the payload says") },
  throw() { throw Object.create(null) }, // which has no text
  permanent() { throw new all.Permanent("for good") },
  retry({ ms }) { throw new all.RetryIn("busy", ms) },
  async not_begun(act) {
    await acts.sleep(act)
    throw new all.NotBegun()
  },
  sleep: ({ ms }) => new Promise(resolve => setTimeout(resolve, ms)),
  hang: (_, signal) => new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason))),
}

export async function drive(line) {
  const c = JSON.parse(line)
  try {
    const answer = await commands[c.op](c, camel(c.options))
    return c.op === "report" ? undefined : answer ?? {}
  } catch (error) { return { error: error.kind ?? String(error) } }
}

// What Node does in n events or jobs: how many a second, and how many µs of CPU each takes.
const measured = {
  async events(url, n) {
    const r = new Reporter(url, { linger: 5 }), laps = Array.from({ length: 64 }, (_, kart) => ({ event: "lap", kart, ms: 63210 }))
    for (let i = 0; i < n; i++) {
      r.report("kart" + i % 64, laps[i % 64])
      if (i % 256 === 0) while (r.stats().pending > 5000) await new Promise(setImmediate)
    }
    if (!await r.close(60000) || r.stats().acked !== n) throw new Error(JSON.stringify(r.stats()))
  },
  async jobs(url, n) {
    const { Queues, Worker } = await import("./spillway.js")
    let done = 0
    const worker = new Worker(new Queues(url), ["welcome"], async () => { if (++done === n) worker.stop() }, { concurrency: 128 })
    await worker.run()
  },
}

async function bench(what, url, n) {
  const wall = performance.now(), cpu = process.cpuUsage()
  await measured[what](url, n)
  const { user, system } = process.cpuUsage(cpu)
  console.log(Math.round(n * 1000 / (performance.now() - wall)), (user + system) / n)
}

if (globalThis.process?.argv[2] === "bench") await bench(process.argv[3], process.argv[4], Number(process.argv[5]))
else if (globalThis.process) {
  const { createInterface } = await import("node:readline")
  for await (const line of createInterface({ input: process.stdin })) {
    const answer = await drive(line)
    if (answer) process.stdout.write(JSON.stringify(answer) + "\n")
  }
  process.exit(0)
}
