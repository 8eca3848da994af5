// Reports events to a Spillway service and forgets them: browsers and Node 18 or newer,
// no dependency; a page needs this file only. The names and defaults are those of the Go client.
//
//   import { Reporter } from "./reporter.js"
//   const events = new Reporter("https://events.example.com", { namespace: "kart", token: "…" })
//   events.report("com.acme.kart", { event: "lap", ms: 63210 })
//
// report copies the value into a bounded queue and returns. The oldest entries make
// room, what cannot be sent is tried again until it is too old, and every entry is counted: in
// stats(), reported = acked + handed + pending + the sum of dropped. A Node program that ends by
// itself sends what waits first. One that calls process.exit(), or that a signal ends, loses it,
// unless it awaits close() before.

const defaults = {
  namespace: "default", token: "",
  batch: 128, batchBytes: 256 << 10, linger: 1000, // entries, bytes, ms
  queue: 10000, queueBytes: 32 << 20, maxEntry: 32 << 10, maxAge: 180000,
  inFlight: 4, timeout: 10000, attempts: 4, backoffBase: 100, backoffMax: 5000,
  breakAfter: 5, probeEvery: 1000, compressFrom: 1024, keyWindow: 110000,
  storage: null, storageBytes: 512 << 10, // such as localStorage
  onDrop: null, onError: null, fetch: null,
}
const partitionRule = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/
const idRule = /^[!-~]{1,64}$/
const maxDepth = 510 // of a value in a shared body: the service takes 512, with the array and the item
const maxTimer = 2 ** 31 - 1 // ms; a longer one ends at once
const beaconBytes = 60 << 10 // browsers take 64 KiB in all
const utf8 = new TextEncoder()
const utf8Length = globalThis.Buffer?.byteLength ?? (text => utf8.encode(text).byteLength)

// Node ends a program that has nothing left to do, and a linger is nothing to it. What waits is
// sent before; process.exit(), a signal and an exception that nobody catches leave no time.
const unsent = new Set() // of clients with entries: what they do then
globalThis.process?.on?.("beforeExit", () => unsent.forEach(exit => exit()))

export class Reporter {
  #o; #base; #keys; #numbers = 0
  #parts = new Map() // name → { list: entries, oldest first; bytes; busy: a request carries some }
  #all = new Set() // the entries that wait, oldest first
  #bytes = 0
  #free = 0; #freeBytes = 0 // entries of partitions of which no request carries any
  #requests = new Set()
  #reported = 0; #acked = 0; #handed = 0; #dropped = {}; #untold = {}
  #failures = 0; #probe = 0 // the breaker: failures in a row, when the next attempt may be made
  #urgent = false; #closed = false; #over = false
  #timer = null; #due = Infinity
  #stop = new AbortController(); #waiters = []
  #notices = {}; #noticed = 0; #noticeTimer = null; #error = null
  #gone = false; #kept = false // the page is going; it is hidden, and storage has what waits
  #saved = new Set() // the entries in storage
  #hide = ({ type }) => {
    // As a page goes, a browser fails its open requests and sends them all the same. What
    // pagehide left open is therefore not handed over again; it keeps its key if the page returns.
    const hidden = type === "pagehide" || globalThis.document?.visibilityState === "hidden"
    if (!hidden) {
      this.#kept = false
      this.#unsave()
    } else if (!this.#gone) this.hand()
    if (type !== "visibilitychange") this.#gone = type === "pagehide"
  }

  #exit = async () => { await this.flush() ? this.#tell() : this.close(0) }

  constructor(url, options = {}) {
    const o = this.#o = settings(defaults, options)
    this.#base = endpoint(url, o)
    if (!(o.batch >= 1 && o.batch <= 1000 && o.queue >= 2 && o.inFlight >= 1 && o.attempts >= 1 && o.batchBytes >= o.maxEntry))
      throw new RangeError("spillway: batch, queue, inFlight, attempts or batchBytes is out of range")
    o.onError = guest(o.onError ?? warner(`${this.#base}/v1/${o.namespace}`))
    o.onDrop = guest(o.onDrop)
    this.#keys = newKeys()
    this.#load()
    this.#listen("addEventListener")
  }

  // report queues a value: anything that JSON can say, or a Uint8Array as it is. at is ms
  // since 1970 or a Date. It returns false for what is not taken, which is counted.
  report(partition, value, { at = Date.now(), id = "" } = {}) {
    this.#reported++
    let data, size
    try {
      data = value instanceof Uint8Array ? asText(value) : JSON.stringify(value)
      size = typeof data === "string" ? utf8Length(data) : data.byteLength
    } catch { size = 0 }
    if (!size || !(at >= 0 && at < 1e13) || !partitionRule.test(partition) || id && !idRule.test(id)) return this.#drop("invalid", 1)
    if (size > this.#o.maxEntry) return this.#drop("too_large", 1)
    if (this.#closed) return this.#drop("shutdown", 1)
    if (tooDeep(data)) data = utf8.encode(data) // it travels alone
    this.#add({ partition, data, size, id, at: Math.floor(+at), queued: now() })
    if (this.#free === 1 || this.#timer === null || this.#full() && this.#requests.size < this.#o.inFlight) this.#look()
    return true
  }

  stats() {
    const dropped = { ...this.#dropped }
    return { reported: this.#reported, acked: this.#acked, handed: this.#handed, pending: this.#pending(), dropped }
  }

  // flush sends what waits without its linger, and resolves to whether all of it was
  // settled within timeout (ms).
  async flush(timeout = 10000) {
    const until = now() + timeout
    const waits = new Set([...this.#all, ...[...this.#requests].flatMap(r => r.entries)])
    this.#urgent = true
    this.#look()
    while ([...waits].some(e => !e.settled)) {
      const left = until - now()
      if (left <= 0) return false
      await new Promise(resolve => {
        const timer = setTimeout(resolve, left)
        this.#waiters.push(() => { clearTimeout(timer); resolve() })
      })
    }
    return true
  }

  // close takes no more entries, flushes for as long as timeout (ms), and drops the rest.
  async close(timeout = 10000) {
    this.#closed = true
    this.#listen("removeEventListener")
    const done = await this.flush(timeout)
    this.#over = true
    unsent.delete(this.#exit)
    this.#kept = false
    this.#unsave()
    this.#stop.abort()
    while (this.#all.size) this.#lose(first(this.#all), "shutdown")
    while (this.#requests.size) await new Promise(resolve => this.#waiters.push(resolve))
    clearTimeout(this.#timer)
    this.#tell()
    return done
  }

  // hand gives what waits to the browser, for the page may be about to go: as much as
  // it takes by navigator.sendBeacon. Nobody learns what becomes of it, so it is counted as
  // handed. What is left goes into storage, if there is one, for the next page.
  hand() {
    const key = this.#o.token ? "?k=" + encodeURIComponent(this.#o.token) : ""
    this.#unsave()
    this.#kept = !!this.#o.storage
    const waiting = this.#waiting()
    // What other requests of the page carry counts too, so a smaller beacon may still go.
    for (let limit = globalThis.navigator?.sendBeacon ? beaconBytes : 0; limit >= 1024;) {
      const list = []
      let bytes = 0
      for (const e of waiting) {
        if (typeof e.data !== "string") continue
        if ((bytes += e.size + 300) > limit) break
        list.push(e)
      }
      if (!list.length || !navigator.sendBeacon(`${this.#base}/beacon/${this.#o.namespace}${key}`, array(list))) {
        limit /= 2
        continue
      }
      for (const e of list) this.#leave(e)
      for (const e of list) waiting.delete(e)
    }
    this.#save()
    this.#wake()
  }

  // #waiting are the entries that end with the page: an open request may outlive it; one
  // that is compressed, or waits to be tried again, does not.
  #waiting() {
    return new Set([...[...this.#requests].flatMap(r => r.entries).filter(e => !e.open && !e.settled), ...this.#all])
  }

  // #leave counts an entry that is somebody else's to send from now on.
  #leave(e) {
    if (this.#all.has(e)) this.#remove(e)
    e.settled = e.handed = true
    this.#handed++
  }

  #listen(how) {
    globalThis.document?.[how]?.("visibilitychange", this.#hide)
    for (const type of ["pagehide", "pageshow"]) globalThis[how]?.(type, this.#hide)
  }

  #pending() {
    return this.#reported - this.#acked - this.#handed - Object.values(this.#dropped).reduce((a, b) => a + b, 0)
  }

  #part(name) {
    let p = this.#parts.get(name)
    if (!p) this.#parts.set(name, p = { name, list: [], bytes: 0, busy: false })
    return p
  }

  #add(e) {
    const p = this.#part(e.partition), o = this.#o
    p.list.push(e)
    this.#count(p, e, 1)
    this.#all.add(e)
    while (p.list.length > o.queue / 2 || p.bytes > o.queueBytes / 2) this.#lose(p.list[0], "queue_overflow")
    while (this.#all.size > o.queue || this.#bytes > o.queueBytes) this.#lose(first(this.#all), "queue_overflow")
  }

  #count(p, e, n) {
    p.bytes += n * e.size
    this.#bytes += n * e.size
    if (!p.busy) this.#freed(n, n * e.size)
  }

  #freed(n, bytes) {
    this.#free += n
    this.#freeBytes += bytes
  }

  #full() { return this.#free >= this.#o.batch || this.#freeBytes >= this.#o.batchBytes }

  // #remove takes the oldest entry of a partition, which e is, out of the queue.
  #remove(e) {
    const p = this.#parts.get(e.partition)
    p.list.splice(p.list.indexOf(e), 1)
    this.#count(p, e, -1)
    this.#all.delete(e)
    if (!p.list.length && !p.busy) this.#parts.delete(e.partition)
  }

  #lose(e, why) {
    this.#remove(e)
    e.settled = true
    this.#drop(why, 1)
  }

  #drop(why, n) {
    this.#dropped[why] = (this.#dropped[why] ?? 0) + n
    if (why !== "rejected") this.#untold[why] = (this.#untold[why] ?? 0) + n
    if (this.#o.onDrop) this.#notice(() => { this.#notices[why] = (this.#notices[why] ?? 0) + n })
    return false
  }

  // #notice calls the callbacks once a second at most.
  #notice(note) {
    note()
    this.#noticeTimer ??= later(() => this.#tell(), Math.max(0, this.#noticed + 1000 - now()))
  }

  #tell() {
    clearTimeout(this.#noticeTimer)
    this.#noticeTimer = null
    this.#noticed = now()
    const drops = this.#notices, error = this.#error
    this.#notices = {}
    this.#error = null
    for (const why in drops) this.#o.onDrop?.(why, drops[why])
    if (error) this.#o.onError(error)
  }

  // #look makes requests of what is due, and sets the timer for the rest.
  #look() {
    if (this.#over) return
    unsent[this.#all.size || this.#requests.size ? "add" : "delete"](this.#exit)
    for (let e; (e = first(this.#all)) && this.#stale(e);) this.#lose(e, "stale")
    while (this.#requests.size < this.#o.inFlight && this.#wait() <= 0) this.#start()
    const wait = Math.min(
      this.#requests.size < this.#o.inFlight ? this.#wait() : Infinity,
      this.#all.size ? first(this.#all).at + this.#o.maxAge - Date.now() + 1 : Infinity)
    const due = now() + wait
    if (this.#timer !== null && this.#due <= due) return
    clearTimeout(this.#timer)
    this.#timer = null
    this.#due = due
    if (wait < Infinity) this.#timer = later(() => { this.#timer = null; this.#look() }, Math.max(0, Math.min(wait, maxTimer)))
  }

  // #wait is how long until a request is due, in ms.
  #wait() {
    if (!this.#free) return Infinity
    if (this.#urgent || this.#full()) return 0
    let oldest = Infinity
    for (const p of this.#parts.values()) if (!p.busy && p.list.length) oldest = Math.min(oldest, p.list[0].queued)
    return oldest + this.#o.linger - now()
  }

  #start() {
    const r = { entries: [], parts: new Set() }
    let bytes = 0
    for (const e of this.#all) {
      const p = this.#parts.get(e.partition)
      if (p.busy && !r.parts.has(p)) continue
      if (r.entries.length && (r.entries.length >= this.#o.batch || bytes + e.size > this.#o.batchBytes)) break
      if (this.#stale(e)) {
        this.#lose(e, "stale")
        continue
      }
      if (!p.busy) this.#freed(-p.list.length, -p.bytes)
      p.busy = true
      r.parts.add(p)
      this.#remove(e)
      r.entries.push(e)
      bytes += e.size
    }
    if (!r.entries.length) return
    this.#requests.add(r)
    this.#send(r)
  }

  async #send(r) {
    for (let i = 0; i < r.entries.length;) {
      let n = i + 1 // entries that are JSON share a body, others travel alone
      if (typeof r.entries[i].data === "string") while (n < r.entries.length && typeof r.entries[n].data === "string") n++
      await this.#deliver(r.entries.slice(i, n))
      i = n
    }
    this.#requests.delete(r)
    for (const p of r.parts) {
      p.busy = false
      this.#freed(p.list.length, p.bytes)
      if (!p.list.length) this.#parts.delete(p.name)
    }
    if (!this.#all.size) this.#urgent = false
    this.#wake()
    this.#look()
  }

  #wake() { for (const resolve of this.#waiters.splice(0)) resolve() }

  #end(list, why) {
    list = list.filter(e => !e.settled)
    for (const e of list) e.settled = true
    if (list.length) this.#drop(why, list.length)
  }

  async #deliver(list) {
    list = list.filter(e => !e.settled)
    if (!list.length) return
    const why = await this.#try(list)
    if (!why) return this.#deliver(list)
    if (why !== "split") return this.#end(list, why)
    const half = list.length >> 1
    await this.#deliver(list.slice(0, half))
    return this.#deliver(list.slice(half))
  }

  // #try makes attempts until each entry is stored or dropped for good, or some were handed over
  // meanwhile, and otherwise returns what becomes of the others. All have the same bytes and key, so
  // that the service, which may have stored some of the entries, stores only the others. They
  // end when the youngest entry is stale, and before the service forgets the key.
  async #try(list) {
    const o = this.#o
    const stale = Math.max(...list.map(e => e.at)) + o.maxAge
    let forgotten = Infinity, noes = 0 // when the service may not know the key of an attempt that may have stored some
    const late = () => this.#over ? "shutdown" : forgotten < stale ? "unknown" : "stale"
    const pause = async ms => Date.now() + ms <= Math.min(stale, forgotten) && sleep(ms, this.#stop.signal)
    const text = typeof list[0].data === "string"
    let body = text ? array(list) : list[0].data
    const url = `${this.#base}/v1/${o.namespace}` + (text ? "" : "/" + list[0].partition)
    const headers = { "Content-Type": text ? "application/json" : "application/octet-stream", "Idempotency-Key": `${this.#keys}-${++this.#numbers}` }
    if (!text) headers["X-Event-Ts"] = String(list[0].at)
    if (o.token) headers.Authorization = "Bearer " + o.token
    if (o.compressFrom >= 0 && (body.byteLength ?? body.length) >= o.compressFrom && globalThis.CompressionStream) {
      body = await zip(text ? utf8.encode(body) : body)
      headers["Content-Encoding"] = "gzip"
    }
    for (let attempt = 1; ; attempt++) {
      while (this.#failures >= o.breakAfter && now() < this.#probe) if (!await pause(this.#probe - now())) return late()
      this.#unsave()
      if (list.some(e => e.handed)) return
      this.#probe = now() + o.probeEvery
      const sent = Date.now()
      if (this.#over || sent > forgotten) break
      for (const e of list) e.open = true
      if (this.#kept) this.#save()
      const a = await this.#post(url, headers, body, list.length, Math.min(o.timeout, forgotten - sent))
      for (const e of list) e.open = false
      if (a.down) this.#failures++
      else this.#failures = 0
      if (a.error) this.#notice(() => { this.#error = a.error })
      if (a.results) list.forEach((e, i) => {
        const said = a.results.get(i)
        if (said === "drop") this.#end([e], "rejected")
        else if (!e.settled && said !== "retry") {
          this.#acked++
          e.settled = true
        }
      })
      if (!list.some(e => !e.settled)) return
      if (a.dropped) return a.split && list.length > 1 && forgotten === Infinity ? "split" : a.dropped
      if (a.maybe) forgotten = Math.min(forgotten, sent + o.keyWindow)
      if (this.#kept) this.#save()
      if (a.no && ++noes >= o.attempts && !this.#over) return "retries_exhausted"
      if (!await pause(Math.max(backoff(o, attempt), a.after ?? 0))) break
    }
    return late()
  }

  // #post is one attempt with n entries: { results }, { dropped, split }, or { after, down }; maybe: it stored some, or may have.
  async #post(url, headers, body, n, timeout) {
    const abort = new AbortController(), timer = setTimeout(() => abort.abort(), timeout)
    const stop = () => abort.abort()
    this.#stop.signal.addEventListener("abort", stop)
    const told = this.#untold
    const discards = Object.entries(told).map(([why, n]) => `${why === "invalid" ? "other" : why}=${n}`).join(",")
    this.#untold = {}
    let stored = false, no = false // an answer that more attempts may not change
    try {
      const h = { ...headers, "X-Sent-At": String(Date.now()) }
      if (discards) h["X-Client-Discards"] = discards
      // A small request outlives its page; browsers take 64 KiB of such bodies at once.
      const keepalive = (body.byteLength ?? utf8Length(body)) * this.#o.inFlight <= beaconBytes
      const r = await (this.#o.fetch ?? fetch)(url, { method: "POST", headers: h, body, signal: abort.signal, redirect: "manual", keepalive })
      const text = await r.text(), { status } = r, down = status >= 500
      no = status < 502 || status > 504
      const error = Object.assign(new Error(`spillway: the service answered ${status} ${text.slice(0, 200)}`), { status })
      const results = new Map()
      if (status === 200) {
        const said = JSON.parse(text), check = (v, end) => { if (!Number.isInteger(v) || v < 0 || v >= end) throw error }
        check(said.accepted, n + 1)
        for (const r of said.results ?? []) {
          check(r.i, n)
          results.set(r.i, r.result.trim()) // throws where it is no string
        }
      }
      if (status === 200 || status === 204) return stored = true, { results, maybe: true }
      if (down || status === 408 || status === 429) // a 503 says when it may have stored some
        return { after: retryAfter(r.headers.get("Retry-After")), down, no, maybe: down && (status !== 503 || /"outcome"/.test(text)), error }
      return { dropped: "rejected", split: status === 413, error }
    } catch (error) {
      return { down: true, no, maybe: !unconnected.test(error.cause?.code), error }
    } finally {
      clearTimeout(timer)
      this.#stop.signal.removeEventListener("abort", stop)
      if (!stored) for (const why in told) this.#untold[why] = (this.#untold[why] ?? 0) + told[why]
    }
  }

  #stale(e) { return Date.now() >= e.at + this.#o.maxAge }

  get #slot() { return "spillway:" + this.#o.namespace }

  // #save keeps the newest entries that wait, as many as storageBytes holds beside those
  // of other pages that are hidden.
  #save() {
    const { storage, storageBytes } = this.#o
    if (!storage) return
    this.#unsave()
    const left = this.#left(), kept = [], saved = new Set()
    let bytes = JSON.stringify(left).length
    for (const e of [...this.#waiting()].reverse()) {
      if (typeof e.data !== "string") continue
      if ((bytes += e.size + 300) > storageBytes) break
      kept.push([e.partition, e.data, e.at, e.id, this.#keys])
      saved.add(e)
    }
    try {
      if (kept.length) storage.setItem(this.#slot, JSON.stringify([...left, ...kept.reverse()]))
      this.#saved = saved
    } catch { /* full or forbidden: the entries still wait in memory */ }
  }

  // #unsave takes back what this page saved, to send it; or leaves it to a page that was
  // opened meanwhile and took it.
  #unsave() {
    const mine = this.#saved
    if (!mine.size) return
    this.#saved = new Set()
    const left = this.#left(), others = left.filter(e => e?.[4] !== this.#keys)
    if (others.length === left.length) {
      for (const e of mine) if (!e.settled) this.#leave(e)
      return this.#wake()
    }
    try {
      if (others.length) this.#o.storage.setItem(this.#slot, JSON.stringify(others))
      else this.#o.storage.removeItem(this.#slot)
    } catch { /* forbidden */ }
  }

  // #left is what pages left in storage.
  #left() {
    try {
      const left = JSON.parse(this.#o.storage.getItem(this.#slot))
      return Array.isArray(left) ? left : []
    } catch { return [] }
  }

  // #load takes what an earlier page left. It was reported there, and is again here.
  #load() {
    try {
      const left = JSON.parse(this.#o.storage?.getItem(this.#slot) ?? "[]")
      this.#o.storage?.removeItem(this.#slot)
      for (const [partition, data, at, id] of left) {
        JSON.parse(data)
        if (!partitionRule.test(partition) || !(at + this.#o.maxAge > Date.now())) continue
        this.#reported++
        this.#add({ partition, data, size: utf8Length(data), id, at, queued: now() - this.#o.linger })
      }
      if (left.length) this.#look()
    } catch { /* nothing of ours */ }
  }
}

// later is a timer that does not keep Node alive.
function later(f, ms) {
  const timer = setTimeout(f, ms)
  timer.unref?.()
  return timer
}

function first(set) { return set.values().next().value }

function item(e) {
  const id = e.id ? `,"id":${JSON.stringify(e.id)}` : ""
  return `{"partition":"${e.partition}","ts":${e.at}${id},"data":${e.data}}`
}

function array(list) { return "[" + list.map(item).join(",") + "]" }

// Node's own gzip takes a fifth of its CompressionStream's time. To wait for it takes longer than 32 KiB do, which are 0.1 ms.
const zlib = globalThis.process?.getBuiltinModule?.("node:zlib")

function zip(bytes) {
  if (zlib && bytes.length <= 32 << 10) return zlib.gzipSync(bytes, { level: 1 })
  if (zlib) return new Promise((resolve, reject) => zlib.gzip(bytes, { level: 1 }, (error, packed) => error ? reject(error) : resolve(packed)))
  const { writable, readable } = new CompressionStream("gzip"), writer = writable.getWriter()
  writer.write(bytes)
  writer.close()
  return new Response(readable).arrayBuffer()
}

// asText is bytes as JSON text, where they are that.
function asText(bytes) {
  try {
    const text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes)
    JSON.parse(text)
    return text
  } catch { return bytes.slice() }
}

function tooDeep(text) {
  if (typeof text !== "string" || text.length <= 2 * maxDepth) return false
  let depth = 0, quoted = false
  for (let i = 0; i < text.length; i++) {
    const c = text[i]
    if (quoted && c === "\\") i++
    else if (c === '"') quoted = !quoted
    else if (quoted) continue
    else if (c === "[" || c === "{") {
      if (++depth > maxDepth) return true
    } else if (c === "]" || c === "}") depth--
  }
  return false
}

// What follows is also the worker's.

// settings are options with their defaults.
export function settings(defaults, options) {
  for (const name in options) if (!(name in defaults)) throw new TypeError(`spillway: no option ${name}`)
  return { ...defaults, ...Object.fromEntries(Object.entries(options).filter(([, v]) => v !== undefined)) }
}

// endpoint is the URL of the service, without a slash at its end.
export function endpoint(url, { namespace }) {
  const u = new URL(url)
  if (!/^https?:$/.test(u.protocol) || u.username || u.search || u.hash) throw new TypeError("spillway: the URL is http(s)://host:port")
  if (!/^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$/.test(namespace)) throw new TypeError("spillway: bad namespace")
  return u.href.replace(/\/+$/, "")
}

// warner is the hook of a program that gives none: it warns of each kind of failure, once a minute at most.
export function warner(url) {
  const last = {}
  return error => {
    const kind = error.kind ?? error.status ?? error.name
    if (now() - last[kind] < 60000) return
    last[kind] = now()
    console.warn(`a request to ${url} failed: ${error.cause?.message || error.message || error}`)
  }
}

// guest calls a callback of the program, whose exceptions are its own: the first is told.
export function guest(callback) {
  let told = false
  return callback && (async (...said) => {
    try { await callback(...said) } catch (error) {
      if (!told) console.error("spillway: a callback failed, which is told once:", error)
      told = true
    }
  })
}

// newKeys is what the idempotency keys of a client begin with.
export function newKeys() { return globalThis.crypto?.randomUUID?.() ?? Date.now().toString(36) + Math.random().toString(36).slice(2) }

// now is ms of a clock that nobody sets.
export function now() { return globalThis.performance?.now() ?? Date.now() }

// backoff is a random time up to the nth bound (full jitter), in ms.
export function backoff({ backoffBase, backoffMax }, n) { return Math.random() * Math.min(backoffMax, backoffBase * 2 ** (n - 1)) }

// sleep resolves to false when signal ends it.
export function sleep(ms, signal) {
  return new Promise(resolve => {
    if (signal?.aborted) return resolve(false)
    const done = () => { clearTimeout(timer); signal?.removeEventListener("abort", done); resolve(!signal?.aborted) }
    const timer = setTimeout(done, Math.min(ms, maxTimer))
    signal?.addEventListener("abort", done)
  })
}

// unconnected are the codes of Node for a request that was not sent.
export const unconnected = /^(ECONNREFUSED|ENOTFOUND|EAI_AGAIN|EHOSTUNREACH|ENETUNREACH|UND_ERR_CONNECT_TIMEOUT)$/

export function retryAfter(header) {
  if (!header) return 0
  const ms = /^\d+$/.test(header.trim()) ? header * 1000 : Date.parse(header) - Date.now()
  return Math.min(Math.max(ms || 0, 0), 3600000)
}
