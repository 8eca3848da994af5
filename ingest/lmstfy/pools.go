package lmstfy

import (
	"github.com/spillway-io/spillway/ingest/jobs"
	"github.com/spillway-io/spillway/partition/job"
)

// A Pool is one Redis with queues.
type Pool struct {
	Name   string
	Engine Engine
	Store  job.Operations
}

// Engine is what runs in shared calls; *jobs.Engine is one. An error is in what was given.
type Engine interface {
	Publish(publishes ...*job.Publish)
	Ack(acks ...*job.Ack)
	Claim(c *jobs.Claim) ([]job.Job, error)
	GiveBack(ns *job.Namespace, claimed []job.Job)
}

// Pools are those of one process, one at least. No two have a namespace of the same name.
type Pools []Pool

// Of is the pool of a namespace, nil where there is no such namespace.
func (p Pools) Of(namespace string) *Pool {
	for i := range p {
		if p[i].Store.Namespace(namespace) != nil {
			return &p[i]
		}
	}
	return nil
}
