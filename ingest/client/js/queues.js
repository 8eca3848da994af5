// Publishes, claims and works jobs of a Spillway service, on Node 18 or newer. The names and defaults
// are those of the Go client, durations are in ms.
//
//   const queues = new Queues("http://127.0.0.1:8080", { namespace: "mail" })
//   await queues.publish("welcome", { to: "ada" }, { delay: 60000 })
//   await new Worker(queues, ["welcome"], async job => send(job.json()), { concurrency: 8 }).run()

import { backoff, endpoint, guest, newKeys, now, retryAfter, settings, sleep, unconnected, warner } from "./reporter.js"

// SpillwayError is an answer that is none, or that says no. Its kind is one of those below; code is the
// service's own word, status that of HTTP, 0 where nothing answered.
export class SpillwayError extends Error {
  constructor(kind, message, more = {}) {
    super(`spillway: ${kind}: ${message}`)
    Object.assign(this, { name: "SpillwayError", kind, code: "", status: 0, retryAfter: 0 }, more)
  }
}

// What a handler throws to say what becomes of its job. Anything else is a nack with a back-off.
export class Permanent extends Error { constructor(error) { super(text(error), { cause: error }) } }
export class RetryIn extends Error { constructor(error, after) { super(text(error), { cause: error }); this.after = after } }
export class Deferred extends Error { constructor(ttr) { super(`deferred for ${ttr} ms`); this.ttr = ttr } }
export class NotBegun extends Error { }

const kinds = Object.fromEntries(Object.entries({
  no_job: "no_such_job", no_namespace: "no_such_namespace", too_many_jobs: "too_many_jobs", too_many_keys: "too_many_keys",
  too_many_queues: "too_many_queues", unauthorized: "unauthorized forbidden cross_origin", rate_limited: "rate_limited",
  empty: "empty_body empty_batch", too_large: "body_too_large entry_too_large too_many_entries", unknown: "hung_up internal",
  unavailable: "request_timeout store_unavailable store_full overloaded shutting_down not_ready",
}).flatMap(([kind, codes]) => codes.split(" ").map(code => [code, kind])))
const maxWait = 240000 // Node gives up a request that is not answered for 300 s
const maxAfter = 30 * 24 * 3600000
const maxError = 1024, maxResult = 4096 // bytes
const lastSettle = 2000 // of a worker without patience
const temporary = e => e.kind === "unknown" || e.kind === "unavailable" || e.kind === "rate_limited"
const barred = e => e.kind === "unauthorized" || e.kind === "no_namespace"

export class Queues {
  #o; #base; #keys = newKeys(); #numbers = 0

  constructor(url, options = {}) {
    const o = this.#o = settings({ namespace: "default", token: "", timeout: 10000, attempts: 4, backoffBase: 100, backoffMax: 5000, fetch: null }, options)
    this.#base = `${endpoint(url, o)}/v1/${o.namespace}/`
    if (!/^[!-~]*$/.test(o.token)) throw new TypeError("spillway: the token holds a character that no token has")
    if (!(o.timeout > 0 && o.attempts >= 1 && o.backoffBase >= 0 && o.backoffMax >= o.backoffBase))
      throw new RangeError("spillway: timeout, attempts, backoffBase or backoffMax is out of range")
  }

  // publish stores a job and resolves when the service has it: anything that JSON can say, or bytes as they are.
  // Attempts in vain do not make it twice. After the kind unknown, repeat it with a key of your own.
  async publish(queue, value, options = {}) {
    return this.#publish(queue, "application/octet-stream", payload(value), options)
  }

  // publishMany stores several jobs, all or none.
  async publishMany(queue, values, options = {}) {
    const payloads = values.map(payload)
    if (payloads.some(p => p.includes(10) || p.at(-1) === 13)) throw new SpillwayError("invalid", "a payload has a line break: publish it alone", { code: "bad_ndjson" })
    return this.#publish(queue, "application/x-ndjson", Buffer.concat(payloads.flatMap(p => [p, Buffer.from("\n")])), options)
  }

  // claim leases ready jobs, the first queue first; none where there are none until wait is over.
  async claim(queues, { count = 1, ttr = 0, wait = 0, ...call } = {}) {
    queues = [queues].flat()
    if (!queues.length) check("")
    queues.forEach(check)
    wait = Math.min(wait, maxWait)
    const { said } = await this.#call({ path: queues.join() + "/claim", query: { count, ttr: ms(ttr), wait: ms(wait) }, wait, ...only(call) })
    if (!Array.isArray(said?.jobs) || !said.jobs.every(f => isJob(f) && queues.includes(f.queue))) throw foreign()
    if (said.jobs.length > count) throw new SpillwayError("unknown", "an answer with more jobs than were asked for")
    return said.jobs.map(f => new Job(f))
  }

  // ack says that a job is done, also when its lease is over. result, if any, is JSON of 4 KiB at most, which wait tells.
  async ack(job, result, call) { return this.#settle(job, "ack", { result }, call) }
  // nack gives a job back, to be ready again after that many ms, 30 days at most; error is why.
  async nack(job, after = 0, error, call) { return this.#settle(job, "nack", { after, error }, call) }
  // bury gives a job up: it is dead.
  async bury(job, error, call) { return this.#settle(job, "bury", { error }, call) }
  // requeue gives a job back to the head of its queue, uncounted. It is sent once: the next delivery has the same attempt.
  async requeue(job, call) { return this.#settle({ ...job, deadline: 0 }, "requeue", {}, { attempts: 1, ...call }) }
  // touch leases a job for ttr ms from now on.
  async touch(job, ttr, call) { return this.#settle(job, "touch", { after: ttr }, call) }
  // progress says how far the work got: percent, and a note of which 200 bytes are kept. It is a touch, for as long as the
  // job was claimed for where call has no ttr.
  async progress(job, percent, note = "", { ttr, ...call } = {}) { return this.#settle(job, "touch", { after: ttr || job.ttr || 60000, progress: percent, note }, call) }
  // defer is a touch, and notes that somebody else will settle the job.
  async defer(job, ttr, call) { return this.#settle(job, "defer", { after: ttr }, call) }

  async get(queue, id, call) { return this.wait(queue, id, 0, call) }
  // wait is a job once it has ended: acked where a rule keeps it, gone where none does, dead; after that many ms in the state
  // that it is in; or no_job, also of one that ended unkept before. So look at state first.
  async wait(queue, id, wait = 30000, call) {
    wait = Math.min(wait, maxWait)
    return this.#read(queue, `/jobs/${encodeURIComponent(id)}`, { query: { wait: ms(wait) }, wait, ...only(call) })
  }
  // peek is the job that is claimed next.
  async peek(queue, call) { return this.#read(queue, "/peek", only(call)) }

  async delete(queue, id, call) {
    const { said, error } = await this.#call({ method: "DELETE", path: `${check(queue)}/jobs/${encodeURIComponent(id)}`, lost: "no_job", ...only(call) })
    if (!error && typeof said?.state !== "string") throw foreign()
  }

  async counts(queue, call) {
    const { said } = await this.#call({ method: "GET", path: check(queue), ...only(call) })
    if (!Number.isInteger(said?.ready)) throw foreign()
    const { ready, dead, delayed = -1, leased = -1, pending, oldest_age_ms: oldestAge } = said
    return { ready, dead, delayed, leased, pending, oldestAge }
  }

  // What follows is for Worker. _settle sends lines of one queue together, and resolves to the errors of each.
  async _settle(queue, lines, call) {
    const body = lines.map(line => JSON.stringify(line) + "\n").join("")
    const { said, maybe } = await this.#call({ path: check(queue) + "/settle", type: "application/x-ndjson", body, ...call })
    if (!Array.isArray(said?.results) || said.results.length !== lines.length) throw foreign()
    return said.results.map(r => {
      if (typeof r?.error === "string") return new SpillwayError(kinds[r.error] ?? "invalid", r.message, { code: r.error, status: 200 })
      if (typeof r?.state !== "string") throw foreign()
      if (r.state === "gone" && !maybe) return new SpillwayError("gone", "the job is not leased to this attempt any more")
    })
  }

  get _url() { return this.#base }

  _backoff(n) { return backoff(this.#o, n) }

  async #settle(job, act, how, call) {
    if (act === "touch" || act === "defer") job.deadline = 0 // it may move
    const [error] = await this._settle(job.queue, [settlement(job, act, how)], only(call))
    if (error) throw error
  }

  async #read(queue, path, call) {
    const { said } = await this.#call({ method: "GET", path: check(queue) + path, ...call })
    if (!isJob(said)) throw foreign()
    return new Job(said)
  }

  async #publish(queue, type, body, { delay, at, ttl, tries, id, shards, key, dedup, onEnd, attributes = {}, unique, uniqueKey, onConflict, ...call }) {
    if (!body.length) throw new SpillwayError("empty", "there is no payload")
    const query = { delay: ms(delay), at: at && new Date(at).toISOString(), ttl: ms(ttl), tries, id, shards, dedup: key && ms(dedup), on_end: onEnd, unique: ms(unique), unique_key: uniqueKey, on_conflict: onConflict }
    for (const [name, value] of Object.entries(attributes)) query["attribute." + name] = value
    const ownKey = key ?? `${this.#keys}-${++this.#numbers}`
    const { said } = await this.#call({ path: check(queue), query, type, body, key: ownKey, keyTTL: key && dedup || 120000, ...only(call) })
    if (said?.evicted != null) throw buffer()
    if (!Array.isArray(said?.ids) || !said.ids.length || !said.ids.every(id => id && typeof id === "string")) throw foreign()
    return { ids: said.ids, repeated: !!said.repeated && !!key, exists: !!said.exists, changed: !!said.changed }
  }

  // #call makes attempts until one is answered for good. maybe: one before the last may have done what was asked, so that
  // the error lost is none. Those with a key end before the service forgets it.
  async #call({ attempts = this.#o.attempts, timeout = this.#o.timeout, wait = 0, signal, lost, ...r }) {
    let maybe = false, forgotten = Infinity
    signal?.throwIfAborted()
    for (let attempt = 1; ; attempt++) {
      const sent = now()
      try {
        return { said: await this.#post(r, Math.min(timeout + wait, forgotten - sent), signal), maybe }
      } catch (error) {
        if (!temporary(error) || error.status === 200) {
          if (maybe && error.kind === lost) return { error }
          throw error
        }
        if (error.kind === "unknown" && !maybe) {
          maybe = true
          if (r.key) forgotten = sent + r.keyTTL * 11 / 12
        }
        if (maybe) error.kind = "unknown"
        const pause = Math.max(backoff(this.#o, attempt), error.retryAfter)
        if (attempt >= attempts || now() + pause > forgotten || !await sleep(pause, signal)) throw error
      }
    }
  }

  async #post(r, timeout, signal) {
    const limit = limited(signal, timeout)
    try {
      const answer = await (await this.#fetch(r, limit.signal)).text()
      try { return JSON.parse(answer) } catch { throw foreign() }
    } catch (error) { throw notAnswered(error) } finally { limit.end() }
  }

  // #fetch sends a request once, and resolves to an answer that says yes.
  async #fetch({ method = "POST", path, query = {}, type, key, body }, signal) {
    const headers = {}
    if (type) headers["Content-Type"] = type
    if (key) headers["Idempotency-Key"] = key
    if (this.#o.token) headers.Authorization = "Bearer " + this.#o.token
    const parameters = new URLSearchParams(Object.entries(query).filter(([name, v]) => v || v != null && name.startsWith("attribute."))).toString()
    const r = await (this.#o.fetch ?? fetch)(this.#base + path + (parameters && "?" + parameters), { method, headers, body, signal, redirect: "manual" })
    if (r.status !== 200 && r.status !== 201) throw refused(r, await r.text())
    return r
  }
}

class Job {
  constructor({ queue, id, attempt = 0, tries, data, attributes = {}, state = "", reason = "", errors = [], progress, note = "", result, ttr_ms: ttr = 60000, published_ms, expires_ms, acked_ms, deadline_ms }) {
    Object.assign(this, { queue, id, attempt, tries, payload: Buffer.from(data, "base64"), attributes, state, reason, errors, progress, note, result, ttr })
    Object.assign(this, { published: published_ms ?? 0, expires: expires_ms ?? 0, acked: acked_ms ?? 0, deadline: deadline_ms ?? 0 })
  }
  text() { return this.payload.toString() }
  json() { return JSON.parse(this.text()) }
}

// only is what each call takes beside its own options.
function only(call = {}) {
  const { attempts, timeout, signal, ...rest } = call
  for (const name in rest) throw new TypeError(`spillway: no option ${name}`)
  return call
}

// Worker claims jobs and gives each to a handler: handle(job, signal). What that returns, if anything, is the job's
// result; what is not JSON of 4 KiB at most is told to onError, and left out. signal aborts when the lease is lost or
// the worker has stopped long enough; its reason is a SpillwayError of the kind lease_lost or stopped.
export class Worker {
  #queues; #names; #handle; #o
  #stopped = new AbortController(); #over = new AbortController(); #leases = new Set(); #endings = new Map()
  #freed = () => { }; #running

  constructor(queues, names, handle, options = {}) {
    const o = this.#o = settings({ concurrency: 1, ttr: 0, wait: 30000, backoffBase: 1000, backoffMax: 600000, stopTimeout: 30000, giveUpAfter: Infinity, onError: null, onRequestError: null }, options)
    if (!(Number.isInteger(o.concurrency) && o.concurrency >= 1 && o.ttr >= 0 && o.wait >= 1 && o.stopTimeout >= 0 && o.backoffBase >= 0 && o.backoffMax >= o.backoffBase))
      throw new RangeError("spillway: concurrency, ttr, wait, stopTimeout, backoffBase or backoffMax is out of range")
    o.onRequestError = guest(o.onRequestError ?? warner(queues._url))
    o.onError = guest(o.onError)
    this.#queues = queues
    this.#names = [names].flat()
    this.#handle = handle
  }

  // run works until stop, and resolves when the handlers have ended. It rejects if the service rejects its
  // requests, those with its token or namespace only after giveUpAfter.
  run() { return this.#running ??= this.#run() }

  // stop claims no more, and resolves as run does.
  stop() {
    this.#stopped.abort()
    this.#freed()
    return this.run()
  }

  async #run() {
    const error = await this.#claim()
    this.#stopped.abort()
    const patience = new AbortController()
    sleep(this.#o.stopTimeout, patience.signal).then(over => {
      if (!over) return
      this.#over.abort()
      for (const lease of this.#leases) end(lease, "stopped", "the worker stops")
    })
    while (this.#leases.size) await new Promise(resolve => this.#freed = resolve)
    patience.abort()
    if (error) throw error
  }

  // #claim claims as long as handlers may run, one request at a time.
  async #claim() {
    const { concurrency, ttr, wait, giveUpAfter } = this.#o, { signal } = this.#stopped
    for (let failures = 0, since = 0; !signal.aborted;) {
      const count = Math.min(concurrency - this.#leases.size, 1000)
      if (count < 1) {
        await new Promise(resolve => this.#freed = resolve)
        continue
      }
      try {
        const jobs = await this.#queues.claim(this.#names, { count, ttr, wait, signal, attempts: 1 })
        for (const job of jobs) this.#work(job)
        failures = since = 0
      } catch (error) {
        if (signal.aborted) return
        this.#o.onRequestError(error)
        if (!barred(error)) since = 0
        else since ||= now()
        if (!since && !temporary(error) || since && now() - since >= giveUpAfter) return error
        await sleep(Math.max(this.#queues._backoff(++failures), error.retryAfter, 1), signal)
      }
    }
  }

  // #work gives a job to the handler, and tells the service what became of it.
  async #work(job) {
    const { ttr } = job
    const lease = { job, until: now() + ttr, told: new AbortController(), timer: null, failures: 0, ended: false }
    let line
    this.#leases.add(lease)
    if (this.#stopped.signal.aborted) line = settlement(job, "requeue") // it came with the last answer
    else {
      lease.timer = setTimeout(() => this.#touch(lease), ttr / 3)
      try {
        line = this.#done(job, await this.#handle(job, lease.told.signal))
      } catch (error) { line = this.#failed(lease, error) }
      lease.ended = true
      clearTimeout(lease.timer)
    }
    if (line) await this.#settle(job, line)
    this.#leases.delete(lease)
    this.#freed()
  }

  // #done is an ack, which also counts after the lease.
  #done(job, result) {
    try { return settlement(job, "ack", { result }) } catch (error) { this.#o.onError?.(job, error) }
    return settlement(job, "ack")
  }

  #failed({ job, told }, error) {
    const cause = told.signal.reason?.kind, notBegun = error instanceof NotBegun, deferred = error instanceof Deferred
    if (!notBegun && !deferred) this.#o.onError?.(job, error)
    if (cause === "lease_lost") return
    if (notBegun) return settlement(job, "requeue")
    if (deferred) return settlement(job, "defer", { after: error.ttr })
    if (error instanceof Permanent) return settlement(job, "bury", { error })
    if (cause === "stopped" && !(error instanceof RetryIn)) return settlement(job, "requeue") // which is not the job's fault
    const after = error instanceof RetryIn ? error.after : backoff(this.#o, job.attempt)
    return settlement(job, "nack", { after, error })
  }

  // #touch prolongs a lease, until its handler has ended or was told to. One request that hangs must not
  // take the time of all.
  async #touch(lease) {
    const { ttr } = lease.job, sent = now()
    if (sent >= lease.until) return end(lease, "lease_lost", "the lease of the job is lost")
    let wait
    try {
      await this.#queues.touch(lease.job, ttr, { attempts: 1, timeout: Math.min(lease.until - sent, ttr / 3) })
      Object.assign(lease, { until: sent + ttr, failures: 0 })
      wait = ttr / 3 - (now() - sent)
    } catch (error) {
      if (error.kind === "gone") return end(lease, "lease_lost", "the lease of the job is lost")
      wait = Math.min(Math.max(this.#queues._backoff(++lease.failures), 1), lease.until - now())
    }
    if (!lease.ended && !lease.told.signal.aborted) lease.timer = setTimeout(() => this.#touch(lease), Math.max(wait, 0))
  }

  // #settle resolves when the service has answered, or the worker has run out of patience.
  #settle(job, line) {
    return new Promise(done => {
      let list = this.#endings.get(job.queue)
      if (!list) {
        this.#endings.set(job.queue, list = [])
        setImmediate(() => this.#settler(job.queue, list))
      }
      list.push({ job, line, done })
    })
  }

  // #settler settles the jobs of one queue in one request at a time: what ends during one goes together in the next.
  async #settler(queue, list) {
    for (let failures = 0; list.length;) {
      const again = await this.#send(queue, list.splice(0))
      list.unshift(...again)
      if (!again.length) failures = 0
      else await sleep(Math.max(this.#queues._backoff(++failures), 1), this.#over.signal)
    }
    this.#endings.delete(queue)
  }

  // #send sends endings once, and resolves to those to be sent again.
  async #send(queue, batch) {
    const { signal } = this.#over, over = signal.aborted
    let errors = [], failed
    try {
      errors = await this.#queues._settle(queue, batch.map(e => e.line), { signal: over ? AbortSignal.timeout(lastSettle) : signal })
    } catch (error) {
      failed = error
      const half = batch.length >> 1
      if (half && error.kind === "too_large") return [...await this.#send(queue, batch.slice(0, half)), ...await this.#send(queue, batch.slice(half))]
    }
    return batch.filter(({ job, done }, i) => {
      const error = failed ?? errors[i]
      if (error && error.kind !== "gone") {
        this.#o.onError?.(job, error)
        if (!over && (temporary(error) || barred(error) || !error.kind)) return true
      }
      done()
      return false
    })
  }
}

function end(lease, kind, why) { lease.told.abort(new SpillwayError(kind, why)) }

// limited is a signal that aborts with another, and once the time is over.
function limited(signal, time) {
  const abort = new AbortController(), stop = () => abort.abort(signal.reason)
  const timer = setTimeout(() => abort.abort(new Error(`no answer within ${time} ms`)), time)
  if (signal?.aborted) stop()
  signal?.addEventListener("abort", stop)
  return {
    signal: abort.signal,
    end() {
      clearTimeout(timer)
      signal?.removeEventListener("abort", stop)
      abort.abort()
    },
  }
}

// buffer is the error of a publish that a buffer answers.
function buffer() { return new SpillwayError("no_namespace", "the namespace is a buffer, and took the payload as an entry; jobs are for one of kind queue", { status: 200 }) }

function foreign() { return new SpillwayError("unknown", "an answer that is none of Spillway's", { status: 200 }) }

// notAnswered is the error of a request without an answer.
function notAnswered(error) {
  if (error instanceof SpillwayError) return error
  return new SpillwayError(unconnected.test(error.cause?.code) ? "unavailable" : "unknown", text(error.cause ?? error), { cause: error })
}

// refused is the error of an answer that says no.
function refused({ status, headers }, body) {
  let said
  try { said = JSON.parse(body) } catch { /* none of Spillway's */ }
  const code = typeof said?.error === "string" ? said.error : ""
  let kind = kinds[code] ?? (status === 429 ? "rate_limited" : status < 500 ? "invalid" : "unknown")
  if (said?.outcome === "unknown") kind = "unknown"
  const message = code ? `${code}: ${text(said.message).slice(0, 200)}` : `the service answered ${status}`
  return new SpillwayError(kind, message, { code, status, retryAfter: retryAfter(headers.get("Retry-After")) })
}

function check(queue) {
  if (/^[A-Za-z0-9-][A-Za-z0-9._-]{0,254}$/.test(queue)) return queue
  throw new SpillwayError("invalid", `${JSON.stringify(queue)}: a queue is 1 to 255 letters, digits, ._- and begins with neither . nor _`, { code: "bad_queue" })
}

// payload is a value as bytes.
function payload(value) {
  const bytes = value instanceof Uint8Array ? value : Buffer.from(JSON.stringify(value) ?? "")
  if (!bytes.length) throw new SpillwayError("empty", "there is no payload")
  return bytes
}

// settlement is a line of a settle. It changes only the delivery that it names; a requeue names the deadline
// of the lease, too, because the next delivery has the same attempt.
function settlement({ id, attempt, deadline }, act, { after = 0, error, result, ...more } = {}) {
  const line = { id, attempt, do: act, ...more }
  if (act === "nack" || act === "touch" || act === "defer") line.ms = Math.ceil(Math.min(Math.max(after, 0), maxAfter))
  if (act === "requeue" && deadline) line.deadline_ms = deadline
  if (error !== undefined) line.error = new TextDecoder().decode(Buffer.from(text(error)).subarray(0, maxError), { stream: true })
  if (result != null) {
    let json
    try { json = JSON.stringify(result) } catch { /* so it is none */ }
    if (json === undefined || Buffer.byteLength(json) > maxResult) throw new SpillwayError("invalid", "a result is JSON, 4 KiB at most")
    line.result = JSON.parse(json) // the caller's own may change before it is sent
  }
  return line
}

function isJob(f) {
  return typeof f?.id === "string" && f.id !== "" && Number.isInteger(f.attempt ?? 0) && Number.isInteger(f.tries) && /^[A-Za-z0-9+/]*={0,2}$/.test(f.data)
}

// text is what an error says, whatever was thrown.
function text(error) {
  try { return String(error?.message || error) } catch { return "an error without a text" }
}

function ms(duration) { return duration && Math.ceil(duration) + "ms" }
