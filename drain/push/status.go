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
		Namespace: t.namespace, Label: t.label, Sink: t.sink, Queues: queues,
		Workers: guard.WorkerStatus{Size: t.slots.Size(), Busy: writes},
	}
}
