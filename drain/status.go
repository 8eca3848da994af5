package drain

import (
	"time"

	"github.com/spillway-io/spillway/drain/guard"
)

// Status returns a snapshot. It takes a few microseconds a target and asks nobody else.
func (d *Drainer) Status() guard.Status {
	s := guard.NewStatus()
	for _, n := range d.namespaces {
		s.Add(n.status(), n.guard)
	}
	return s
}

// LastError returns what the last Write of a partition failed with, and when; empty
// unless its last Write failed and this process made it. At most 8,192 partitions a
// namespace are known.
func (d *Drainer) LastError(namespace, partition string) (words string, at time.Time) {
	for _, n := range d.namespaces {
		if n.name == namespace {
			return n.guard.LastError(partition)
		}
	}
	return "", time.Time{}
}

func (n *namespaceDrain) status() guard.TargetStatus {
	t := guard.TargetStatus{
		Namespace: n.name, Label: n.label,
		Workers: guard.WorkerStatus{Size: n.slots.Size(), Busy: int(n.busy.Load())},
	}
	if n.groups != nil {
		t.Coalesces, t.Fill = true, n.groups.fill()
	}
	return t
}

// fill is how full the Write of the trusted queue is, by the cap that it is nearest to.
func (c *coalescer) fill() float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queues[trusted]
	return min(1, max(
		float64(q.entries)/float64(c.caps.entries),
		float64(q.bytes)/float64(c.caps.bytes),
		float64(q.batches)/float64(c.caps.batches)))
}
