// Bucket: catch the drops with the mouse or the arrow keys; ten make a level, three misses end the
// game. With ?autoplay it plays by itself. Everything that happens is reported.
import { Reporter } from "./reporter.js"

const query = new URLSearchParams(location.search)
const player = "web-" + crypto.getRandomValues(new Uint32Array(1))[0].toString(36)

// The three lines that a game adds.
const events = new Reporter(query.get("spillway") ?? "http://127.0.0.1:8080", {
  namespace: "game", storage: localStorage,
  onDrop: (reason, n) => report("client_dropped", { reason, n }),
})
const report = (event, values) => events.report(player, { event, player, platform: "web", ...values })

const field = document.getElementById("field")
const pen = field.getContext("2d")
let bucket = 240, level, caught, missed, drops, started

function startLevel(n) {
  [level, caught, missed, drops, started] = [n, 0, 0, [], performance.now()]
  report("level_start", { level })
}

function step() {
  if (Math.random() < 0.03 + level * 0.01) drops.push({ x: 20 + Math.random() * 440, y: 0 })
  for (const drop of drops) drop.y += 3 + level
  if (query.has("autoplay") && drops.length) bucket += Math.sign(drops[0].x - bucket) * Math.min(9, Math.abs(drops[0].x - bucket))
  drops = drops.filter(drop => {
    if (drop.y < 330) return true
    if (Math.abs(drop.x - bucket) < 34) caught++
    else missed++
    return false
  })
  const seconds = Math.round((performance.now() - started) / 100) / 10
  if (caught >= 10) {
    report("level_complete", { level, seconds })
    startLevel(level + 1)
  } else if (missed >= 3) {
    report("level_failed", { level, seconds })
    startLevel(1)
  }
}

function draw() {
  pen.clearRect(0, 0, 480, 360)
  pen.fillStyle = "#5ab4ff"
  for (const drop of drops) pen.fillRect(drop.x - 3, drop.y - 6, 6, 12)
  pen.fillStyle = "#ffb454"
  pen.fillRect(bucket - 30, 332, 60, 16)
  pen.font = "16px system-ui"
  pen.fillText(`level ${level}   caught ${caught} of 10   missed ${missed} of 3`, 14, 24)
  const s = events.stats()
  const dropped = Object.values(s.dropped).reduce((sum, n) => sum + n, 0)
  document.getElementById("counts").textContent =
    `${player}: ${s.reported} events reported, ${s.acked} stored, ${s.pending} waiting, ${dropped} dropped`
}

field.addEventListener("mousemove", e => { bucket = e.offsetX })
addEventListener("keydown", e => { bucket += { ArrowLeft: -24, ArrowRight: 24 }[e.key] ?? 0 })

report("session_start", {})
startLevel(1)
setInterval(() => { step(); draw() }, 16)
setInterval(() => report("heartbeat", {}), 5000)

// What ClickHouse makes of all that: the answers to the queries of this folder.
setInterval(async () => {
  const answers = await fetch("answers")
  if (answers.ok) document.getElementById("answers").textContent = await answers.text()
}, 2000)

globalThis.spillway = events // for the browser's console: spillway.stats()
