package drain

import "time"

// Status returns a snapshot of the pusher: a target for each namespace and sink. Its
// workers are the Writes that may run, and those that run or are claimed for.
func (p *Pusher) Status() Status {
	s := newStatus()
	for _, t := range p.targets {
		s.add(t.status(), t.guard)
	}
	return s
}

// LastError returns what the last Write of a queue's jobs failed with, and when; empty
// unless its last Write failed and this process made it.
func (p *Pusher) LastError(namespace, queue string) (words string, at time.Time) {
	for _, t := range p.targets {
		if t.namespace == namespace {
			if words, at = t.guard.lastError(queue); words != "" {
				return words, at
			}
		}
	}
	return "", time.Time{}
}

func (t *pushTarget) status() TargetStatus {
	t.mu.Lock()
	writes, queues := 0, len(t.queues)
	for _, q := range t.queues {
		writes += q.running
	}
	t.mu.Unlock()
	return TargetStatus{
		Namespace: t.namespace, Label: t.label, Sink: t.sink, Queues: queues,
		Workers: WorkerStatus{Size: t.slots.size(), Busy: writes},
	}
}
