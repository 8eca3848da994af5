// Measures the client alone, as Go's BenchmarkReport and BenchmarkWork do: node bench.mjs [events] [jobs].
// A process of its own, on the same machine, answers every request at once.
import { fork } from "node:child_process"
import { createServer } from "node:http"
import { Queues, Reporter, Worker } from "./spillway.js"

async function serve() {
  const data = Buffer.from(`{"text":"${"x".repeat(190)}"}`).toString("base64")
  const server = createServer((request, response) => {
    const pieces = []
    request.on("data", piece => pieces.push(piece)).on("end", () => {
      const url = new URL(request.url, "http://service")
      if (url.pathname.endsWith("/claim")) {
        const jobs = Array.from({ length: url.searchParams.get("count") }, (_, i) => ({ queue: "welcome", id: `j${i}`, attempt: 1, tries: 3, data }))
        return response.end(JSON.stringify({ jobs }))
      }
      if (!url.pathname.endsWith("/settle")) return response.writeHead(204).end()
      const lines = Buffer.concat(pieces).toString().trim().split("\n")
      response.end(JSON.stringify({ results: lines.map((_, i) => ({ i, state: "acked" })) }))
    })
  })
  server.listen(0, "127.0.0.1", () => process.send(server.address().port))
}

// A busy machine gives this process a part of a core only: the second rate is what it does in a second of a core.
const clocks = () => ({ wall: performance.now() / 1000, cpu: Object.values(process.cpuUsage()).reduce((a, b) => a + b) / 1e6 })

function rates(n, begin) {
  const end = clocks()
  return [n / (end.wall - begin.wall), n / (end.cpu - begin.cpu)].map(Math.round)
}

async function events(url, n) {
  const r = new Reporter(url, { linger: 5 }), value = { text: "x".repeat(190) }
  const begin = clocks()
  for (let i = 0; i < n; i++) {
    r.report("kart-" + i % 1000, value)
    if (i % 256 === 0) while (r.stats().pending > 5000) await new Promise(setImmediate)
  }
  if (!await r.close(60000) || r.stats().acked !== n) throw new Error(JSON.stringify(r.stats()))
  return rates(n, begin)
}

async function jobs(url, n) {
  let done = 0
  const begin = clocks()
  const worker = new Worker(new Queues(url), ["welcome"], async () => { if (++done === n) worker.stop() }, { concurrency: 128 })
  await worker.run()
  return rates(done, begin)
}

if (process.send) serve()
else {
  const server = fork(new URL(import.meta.url).pathname)
  const url = "http://127.0.0.1:" + await new Promise(resolve => server.once("message", resolve))
  const [n = 300000, m = 100000] = process.argv.slice(2).map(Number)
  for (let i = 0; i < 3; i++) {
    const [e, eCore] = await events(url, n), [j, jCore] = await jobs(url, m)
    console.log(`${e} events/s, ${eCore} a second of a core; ${j} jobs/s, ${jCore} a second of a core`)
  }
  server.kill()
}
