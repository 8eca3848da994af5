// Package jobs serves durable jobs on the data port: publish, claim, settle and read.
//
// An Engine runs the requests of all connections. Requests that are in flight together
// share calls of the store (lane.go). A claim that finds nothing may wait (poll.go): it is
// woken when its queues have jobs (waiters.go), and costs no command of the store until
// then. A client that goes away while it waits, or before it is answered, takes no job with
// it (hangup_linux.go). Mount gives the native routes to an ingest.Server.
package jobs
