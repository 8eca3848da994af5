/** How a Reporter works. Every default is that of the Go client; durations are in ms. */
export interface ReporterOptions {
  /** Default "default". */
  namespace?: string
  /** Token of the namespace, sent as a bearer token; default none. */
  token?: string
  /** Entries of a request, 1 to 1000; default 128. */
  batch?: number
  /** Bytes of their payloads; default 256 KiB. */
  batchBytes?: number
  /** How long an entry waits for others; default 1000. */
  linger?: number
  /** Entries that wait; default 10000. One partition may have half of them. */
  queue?: number
  /** Bytes of their payloads; default 32 MiB. */
  queueBytes?: number
  /** Bytes of one payload; default 32 KiB. */
  maxEntry?: number
  /** How old an entry may get here; default 180000. */
  maxAge?: number
  /** Requests on their way at once; default 4. */
  inFlight?: number
  /** Of one attempt; default 10000. */
  timeout?: number
  /** How often a request is tried that is answered 408, 429, 500 or what is not of Spillway; default 4. Otherwise until it is too old. */
  attempts?: number
  /** Bounds of the random wait between attempts; default 100 and 5000. */
  backoffBase?: number
  backoffMax?: number
  /** After how many failures in a row one attempt every probeEvery is made; default 5 and 1000. */
  breakAfter?: number
  probeEvery?: number
  /** Bytes from which a body is sent as gzip; default 1024. A negative number turns that off. */
  compressFrom?: number
  /** Keeps what is left when the page hides, such as localStorage; default none. */
  storage?: Pick<Storage, "getItem" | "setItem" | "removeItem"> | null
  /** Bytes that it may keep; default 512 KiB. */
  storageBytes?: number
  /** Told how many entries were dropped for a reason, at most once a second. */
  onDrop?: ((reason: Reason, n: number) => void) | null
  /** Told what went wrong, at most once a second; default a console.warn for each kind of failure, once a minute at most. */
  onError?: ((error: Error) => void) | null
  /** Default the global fetch. */
  fetch?: typeof fetch | null
}

export type Reason =
  "queue_overflow" | "stale" | "too_large" | "retries_exhausted" | "shutdown" | "rejected" | "unknown" | "invalid"

/** reported = acked + handed + pending + the sum of dropped, always. */
export interface Stats {
  reported: number
  /** The service has stored them. */
  acked: number
  /** Given to the browser when the page hid, or from storage to another page; this one does not learn what became of them. */
  handed: number
  pending: number
  dropped: Partial<Record<Reason, number>>
}

export class Reporter {
  /** Throws a TypeError or RangeError for a URL or an option that cannot work. */
  constructor(url: string, options?: ReporterOptions)
  /** Queues anything that JSON can say, or bytes as they are. Returns false for what is not taken, which is counted. */
  report(partition: string, value: unknown, entry?: { at?: number | Date; id?: string }): boolean
  stats(): Stats
  /** Sends what waits; resolves to whether all of it was settled within timeout, default 10000. */
  flush(timeout?: number): Promise<boolean>
  /** Takes no more entries, flushes, and drops what is left after timeout, default 10000. */
  close(timeout?: number): Promise<boolean>
  /** Gives what waits to the browser; called by itself when the page hides. */
  hand(): void
}

/** How Queues work; durations are in ms. Node 18 or newer. */
export interface QueuesOptions {
  /** Default "default". */
  namespace?: string
  /** Token of the namespace, sent as a bearer token; default none. */
  token?: string
  /** Of one attempt, beyond what a claim waits; default 10000. */
  timeout?: number
  /** How often a request is tried while the service is away, overloaded or limits the rate; default 4. */
  attempts?: number
  /** Bounds of the random wait between attempts; default 100 and 5000. Retry-After may make it longer. */
  backoffBase?: number
  backoffMax?: number
  /** Default the global fetch. */
  fetch?: typeof fetch | null
}

/** What a single call may have of its own. */
export interface CallOptions {
  /** Ends the call. What it asked may have been done. */
  signal?: AbortSignal
  timeout?: number
  attempts?: number
}

export interface PublishOptions extends CallOptions {
  /** How long the jobs wait until they are ready; default 0. */
  delay?: number
  /** A time to come, instead of delay: ms since 1970, or a Date. */
  at?: number | Date
  /** How long they live, delay included; default for ever. */
  ttl?: number
  /** How often they are delivered at most; default 3. */
  tries?: number
  /** Your name for a job: 1 to 64 letters, digits, _ and -. While a job has it, no other is stored under it. */
  id?: string
  /** Stores the job this many times, with the attributes shard_index and shard_total. */
  shards?: number
  /** Makes a repeat within dedup (default 120000) store nothing and answer what the first did. */
  key?: string
  dedup?: number
  /** The queue that gets a job when a job ends. */
  onEnd?: string
  /** Facts beside the payload, 16 at most. */
  attributes?: Record<string, string>
  /** For how long no other job is stored under uniqueKey, or id, whatever becomes of the first: 1000 to 24 h. */
  unique?: number
  uniqueKey?: string
  /** What a double does to the first while that is delayed; default "keep". */
  onConflict?: "keep" | "replace" | "extend"
}

export interface Published {
  /** Of the jobs, in their order. */
  ids: string[]
  /** An earlier publish with the same key stored them. */
  repeated: boolean
  /** A job with the same id exists, or one is unique; nothing was stored. */
  exists: boolean
  /** That job was changed, as onConflict says. */
  changed: boolean
}

export interface ClaimOptions extends CallOptions {
  /** Jobs at most, 1 to 1000; default 1. */
  count?: number
  /** How long they are leased; default 60000. */
  ttr?: number
  /** How long to wait for the first job, 240000 at most; default 0. */
  wait?: number
}

/** A delivery of a job: what settles it. */
export interface Delivery {
  queue: string
  id: string
  attempt: number
  /** Of claim: how long it was leased. */
  ttr?: number
}

export interface Job extends Delivery {
  /** Deliveries at most. */
  tries: number
  payload: Uint8Array
  attributes: Record<string, string>
  /** Unix ms of the service's clock; 0: never, not. */
  published: number
  expires: number
  acked: number
  /** Of get, peek and wait; acked where a rule keeps such jobs, gone where it ended during a wait and none does. */
  state: "" | "ready" | "prepared" | "delayed" | "leased" | "dead" | "acked" | "gone"
  /** Of get: why it is dead. */
  reason: string
  /** Of get: why attempts failed, the newest first. */
  errors: { attempt: number; at_ms: number; error: string }[]
  /** Of get: what its worker said with progress. */
  progress?: number
  note: string
  /** Of get and wait: what its ack said. */
  result?: any
  text(): string
  json(): any
}

/** delayed and leased are -1 where the service has too many of both to tell them apart; pending is their sum. */
export interface Counts {
  ready: number
  dead: number
  delayed: number
  leased: number
  pending: number
  /** Of the oldest ready job, in ms. */
  oldestAge: number
}

/** Each call is a request, and rejects with a SpillwayError. */
export class Queues {
  /** Throws a TypeError or RangeError for a URL or an option that cannot work. */
  constructor(url: string, options?: QueuesOptions)
  /** Stores a job: anything that JSON can say, or bytes as they are. Attempts in vain do not make it twice. */
  publish(queue: string, value: unknown, options?: PublishOptions): Promise<Published>
  /** Stores several, all or none. No payload may have a line break. */
  publishMany(queue: string, values: unknown[], options?: Omit<PublishOptions, "id" | "shards">): Promise<Published>
  /** Leases ready jobs, the first queue first; none when there are none until wait is over. */
  claim(queues: string | string[], options?: ClaimOptions): Promise<Job[]>
  /** The job is done, also when its lease is over. result is JSON of 4 KiB at most. */
  ack(job: Delivery, result?: unknown, call?: CallOptions): Promise<void>
  /** Gives it back, to be ready again after that many ms; error is why. */
  nack(job: Delivery, after?: number, error?: unknown, call?: CallOptions): Promise<void>
  /** Gives it up: it is dead. */
  bury(job: Delivery, error?: unknown, call?: CallOptions): Promise<void>
  /** Gives it back to the head of its queue, uncounted. Sent once. */
  requeue(job: Delivery, call?: CallOptions): Promise<void>
  /** Leases it for that many ms from now on. */
  touch(job: Delivery, ttr: number, call?: CallOptions): Promise<void>
  /** Says how far the work got: percent, and a note of which 200 bytes are kept. get has both. A touch, by default for job.ttr. */
  progress(job: Delivery, percent: number, note?: string, call?: CallOptions & { ttr?: number }): Promise<void>
  /** A touch, and somebody else will settle it. */
  defer(job: Delivery, ttr: number, call?: CallOptions): Promise<void>
  get(queue: string, id: string, call?: CallOptions): Promise<Job>
  /**
   * The job once it has ended: acked where a rule keeps it, gone where none does, dead; after wait, 240000 at most and 30000 by
   * default, in the state that it is in; or no_job, also of one that ended unkept before. So look at state first.
   */
  wait(queue: string, id: string, wait?: number, call?: CallOptions): Promise<Job>
  /** The job that is claimed next. */
  peek(queue: string, call?: CallOptions): Promise<Job>
  delete(queue: string, id: string, call?: CallOptions): Promise<void>
  counts(queue: string, call?: CallOptions): Promise<Counts>
}

/** How a Worker works; durations are in ms. */
export interface WorkerOptions {
  /** Handlers that run at once; default 1. */
  concurrency?: number
  /** How long a job is leased; default as a rule for the queue says, or 60000. The lease is prolonged each third of it while the handler runs. */
  ttr?: number
  /** How long a request waits for jobs, 240000 at most; default 30000. */
  wait?: number
  /** Bounds of the random time that a job waits after its handler failed; default 1000 and 600000. */
  backoffBase?: number
  backoffMax?: number
  /** How long handlers may go on after stop; default 30000. Then their signals abort. */
  stopTimeout?: number
  /** How long it goes on while the service rejects its token or namespace; default Infinity. */
  giveUpAfter?: number
  /** Told of each handler and each settlement that failed. */
  onError?: ((job: Job, error: unknown) => void) | null
  /** Told of each claim that failed; default a console.warn for each kind of failure, once a minute at most. */
  onRequestError?: ((error: unknown) => void) | null
}

export class Worker {
  /**
   * A handler that returns acks, and what it returns, if anything, is the result: JSON of 4 KiB at most, or onError is
   * told, and it is left out. One that throws nacks with a back-off, or does what Permanent, RetryIn, Deferred or
   * NotBegun say. signal aborts when the lease is lost or stopTimeout is over, with a SpillwayError of the kind
   * lease_lost or stopped. A handler must not block the thread: its lease is prolonged on the same one.
   */
  constructor(queues: Queues, names: string | string[], handle: (job: Job, signal: AbortSignal) => unknown, options?: WorkerOptions)
  /** Works until stop; rejects if the service rejects its requests. */
  run(): Promise<void>
  /** Claims no more, and resolves when the handlers have ended. */
  stop(): Promise<void>
}

/** A handler throws it for what no other delivery mends: the job is buried. */
export class Permanent extends Error { constructor(error: unknown) }
/** The job comes again after that many ms. */
export class RetryIn extends Error { constructor(error: unknown, after: number) }
/** No error: whoever does the work settles the job within ttr ms. */
export class Deferred extends Error { constructor(ttr: number) }
/** No error: the job goes back to the head of its queue, uncounted. */
export class NotBegun extends Error { }

export type Kind =
  "no_job" | "gone" | "empty" | "too_large" | "too_many_jobs" | "too_many_keys" | "too_many_queues" | "invalid" | "unauthorized" |
  "no_namespace" | "rate_limited" | "unavailable" | "unknown" | "lease_lost" | "stopped"

export class SpillwayError extends Error {
  /** unavailable: nothing was done. unknown: it may have been. */
  kind: Kind
  /** The service's own word; empty: it gave none. */
  code: string
  /** Of HTTP; 0: no answer. */
  status: number
  /** The service's wish, in ms. */
  retryAfter: number
}
