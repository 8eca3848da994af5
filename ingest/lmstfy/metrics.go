package lmstfy

import (
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// Metrics are those of lmstfy.
type Metrics struct{}

func (m *Metrics) request(c *call, status int, took time.Duration) {}
func (m *Metrics) limited(c *call, action string)                  {}
func (m *Metrics) published(c *call, p *job.Publish)               {}
func (m *Metrics) consumed(c *call, claimed []job.Job)             {}
func (m *Metrics) acked(c *call, a *job.Ack)                       {}
func (m *Metrics) got(c *call)                                     {}
func (m *Metrics) respawned(c *call, n int)                        {}
