/** How a Client works. Every default is that of the Go client; durations are in ms. */
export interface Options {
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
  /** How often a request is tried; default 4. */
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
  /** Told what went wrong, at most once a second. */
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

export class Client {
  /** Throws a TypeError or RangeError for a URL or an option that cannot work. */
  constructor(url: string, options?: Options)
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
