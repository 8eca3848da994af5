// Package job is the store of durable jobs: queues that keep each job until it is acked,
// expires by its own TTL, or is deleted.
package job
