package push

import (
	"time"

	"github.com/spillway-io/spillway/drain/guard"
)

// Status returns a snapshot of the pusher: a target for each namespace and sink. Its
// workers are the Writes that may run, and those that run or are claimed for.
func (p *Pusher) Status() guard.Status {
	s := guard.NewStatus()
	for _, t := range p.targets {
		s.Add(t.status(), t.guard)
	}
	return s
}

// SinkOf returns the name of the sink that a queue is pushed to; "": it is pushed to none.
func (p *Pusher) SinkOf(namespace, queue string) string {
	for _, n := range p.spaces {
		if n.name == namespace {
			if r := n.rule(queue); r != nil {
				return r.Sink
			}
		}
	}
	return ""
}

// LastError returns what the last Write of a queue's jobs failed with, and when; empty
// unless its last Write failed and this process made it.
func (p *Pusher) LastError(namespace, queue string) (words string, at time.Time) {
	for _, t := range p.targets {
		if t.namespace == namespace {
			if words, at = t.guard.LastError(queue); words != "" {
				return words, at
			}
		}
	}
	return "", time.Time{}
}

func (t *target) status() guard.TargetStatus {
	t.mu.Lock()
	writes, queues := 0, len(t.queues)
	for _, q := range t.queues {
		writes += q.running
	}
	t.mu.Unlock()
	return guard.TargetStatus{
		Namespace: t.namespace,
		Label:     t.label,
		Sink:      t.sink,
		Queues:    queues,
		Workers:   guard.WorkerStatus{Size: t.slots.Size(), Busy: writes},
	}
}
