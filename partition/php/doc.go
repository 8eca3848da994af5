// Package php keeps jobs in the queues of PHP applications, on the keys of their own libraries,
// think-queue and Laravel: it publishes what their workers run, and claims what they push.
//
// A Store answers the operations of queues of package job, so that routes, push, clients and the
// admin port serve both kinds. What differs:
//
//   - An id is that of a delivery: a payload gets another one with each claim. Publish answers none.
//   - Every settlement is fenced, an ack, too: once PHP has the payload, it is job.Gone.
//   - job.Release gives back whatever the try, for workers in which PHP's library decides.
//   - There is no ttl, no spread, no schedule, no prepared job, no follow-up.
//
// Nothing that PHP wrote is ever unserialized: a payload is JSON bytes. The scripts, their keys and
// their invariants are in package lua/php; DESIGN.md says what is decided here.
package php
