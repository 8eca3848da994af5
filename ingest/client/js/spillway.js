// The whole client. A page that only reports needs reporter.js alone.
export { Reporter } from "./reporter.js"
export { Queues, Worker, SpillwayError, Permanent, RetryIn, Deferred, NotBegun } from "./queues.js"
