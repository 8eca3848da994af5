package job

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

// outbox is the queue of a shard where scripts put the follow-ups of jobs that ended, in the call
// that ends them. No list shows it.
const outbox = partition.Outbox

// MaxResult bounds Ack.Result, in bytes.
const MaxResult = 4 << 10

// onEnd is what the end of a job sets off, as the scripts keep it: lines of a letter and a name.
func onEnd(schedule, queue, callerID string) string {
	var text strings.Builder
	for _, line := range [][2]string{{"s", schedule}, {"q", queue}, {"c", callerID}} {
		if line[1] != "" {
			text.WriteString(line[0] + line[1] + "\n")
		}
	}
	return text.String()
}

// ended tells that jobs of a shard may have ended: where that sets something off, the Mover looks.
func (s *core) ended(ns *Namespace, shard int) {
	if ns.shardAt(shard).ends.Needed() {
		s.ends.add(DueShard{ns, shard})
	}
}

// A FollowUp is the payload of a job that tells the end of another.
type FollowUp struct {
	Event string `json:"event"` // acked, dead, expired or deleted; prepared: the publisher shall decide
	Queue string `json:"queue"`
	ID    string `json:"id"`
	AtMS  int64  `json:"at_ms"`
	// PublishedMS is when a prepared job was published.
	PublishedMS int64 `json:"published_ms,omitempty"`
	// Result is what the worker said with its ack: JSON, or a text.
	Result json.RawMessage `json:"result,omitempty"`
}

// A Mover publishes the follow-ups of the outboxes. Each is published at least once under an
// idempotency key, which holds for some leases and counts in max_keys, or without one while those are full, and then acked. Any number of processes may have one.
type Mover struct {
	*lifecycle.Loop

	store *Store
	lane  *Lane
}

// NewMover makes a mover that is not started.
func NewMover(s *Store) *Mover {
	m := &Mover{store: s, lane: s.NewLane()}
	m.Loop = lifecycle.New("mover", nil, m.run)
	return m
}

const (
	// moveEvery is how often the outboxes are looked at, for what a process left that has died.
	moveEvery = time.Second
	// learnEvery is how many such looks apart it asks which shards have an outbox, for what
	// processes left that have all died.
	learnEvery = 30
	movePage   = 128
	// movePages are moved of a shard until it is the turn of the next.
	movePages = 8
	moveLease = 30 * time.Second
	moveKey   = 5 * time.Minute
)

func (m *Mover) run(ctx context.Context) {
	tick := time.NewTicker(moveEvery)
	defer tick.Stop()
	for round := 0; ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if round++; round%learnEvery == 1 {
				m.learn(ctx)
			}
			for _, at := range m.waiting(ctx) {
				m.move(ctx, at)
			}
		case <-m.store.ends.wake:
			for _, at := range m.store.ends.take() {
				m.move(ctx, at)
			}
		}
	}
}

// learn asks the shards that this process knows no follow-up of whether there may be some.
func (m *Mover) learn(ctx context.Context) {
	m.each(ctx, func(sh *shard) bool { return !sh.ends.Needed() }, func(pipe redis.Pipeliner, at DueShard,
		sh *shard) func() {
		watched := pipe.HExists(ctx, sh.Ledger, "watched")
		return func() {
			if watched.Val() {
				sh.ends.Need()
			}
		}
	})
}

// each sends a command or two to the shards that it chooses, in one pipeline a server, and
// calls what read them.
func (m *Mover) each(ctx context.Context, chosen func(*shard) bool,
	ask func(redis.Pipeliner, DueShard, *shard) func()) {
	ctx, cancel := m.store.backend.Probing(ctx)
	defer cancel()
	s, pipes := m.store, backend.Pipes{}
	var reads []func()
	for _, ns := range s.Namespaces() {
		for _, sh := range ns.all() {
			if !chosen(sh) || sh.Breaker.Suspect() {
				continue
			}
			pipe := pipes.To(s.backend.ClientFor(ctx, sh.Ledger))
			reads = append(reads, ask(pipe, DueShard{ns, sh.Number}, sh))
		}
	}
	_ = pipes.Exec(ctx) // each command has its own error
	for _, read := range reads {
		read()
	}
}

// waiting returns the shards whose outbox has follow-ups to move. It notes how many each holds and
// since when, also those that a full queue sent back for a while: only a first one that is ready
// says its time, so until another is ready the time stays.
func (m *Mover) waiting(ctx context.Context) (list []DueShard) {
	jobs, oldest := int64(0), int64(0)
	now, _ := m.store.Now()
	m.each(ctx, func(sh *shard) bool { return sh.ends.Needed() }, func(pipe redis.Pipeliner, at DueShard,
		sh *shard) func() {
		count, head := pipe.HLen(ctx, sh.jobs(outbox)), pipe.LIndex(ctx, sh.ready(outbox), 0)
		t := &sh.schedules
		return func() {
			if count.Err() == nil {
				t.outbox.Store(count.Val())
			}
			if seq, err := head.Int64(); err == nil {
				list = append(list, at)
				t.outboxSince.Store(seq / 1000)
			}
			if t.outbox.Load() == 0 {
				t.outboxSince.Store(0)
			} else if since := t.outboxSince.Load(); since > 0 {
				oldest = max(oldest, now-since)
			}
			jobs += t.outbox.Load()
		}
	})
	m.store.metrics.outbox.Set(float64(jobs))
	m.store.metrics.outboxAge.Set(float64(oldest) / 1000)
	return list
}

// move publishes some of what the outbox of a shard has. Where there is more, it gets a turn behind the others.
func (m *Mover) move(ctx context.Context, at DueShard) {
	for range movePages {
		if ctx.Err() != nil {
			return
		}
		c := Claim{
			Namespace: at.Namespace,
			Shard:     at.Shard,
			Queues:    []string{outbox},
			TTR:       moveLease,
			Count:     movePage,
		}
		m.store.Run(ctx, m.lane, &Batch{Claims: []*Claim{&c}})
		more := len(c.Jobs) == movePage || c.More
		var publish, settle Batch
		moved := make([]*Publish, len(c.Jobs)) // of each job; nil: it is given up
		for i := range c.Jobs {
			p, err := followUp(at.Namespace, &c.Jobs[i])
			if err != nil {
				m.store.log.Error("a follow-up that nobody can read is given up", zap.Error(err),
					zap.String("namespace", at.Namespace.Name))
				settle.Acks = append(settle.Acks, &Ack{
					Namespace: at.Namespace,
					Queue:     outbox,
					Ref:       c.Jobs[i].Ref,
				})
				continue
			}
			moved[i], publish.Publishes = p, append(publish.Publishes, p)
		}
		m.store.Run(ctx, m.lane, &publish)
		publish.Publishes = slices.DeleteFunc(publish.Publishes, func(p *Publish) bool { return !errors.Is(p.Err, ErrTooManyKeys) })
		for _, p := range publish.Publishes {
			p.Key = "" // a repeat, should the reply be lost, is better than no word for as long as the keys are kept
		}
		m.store.Run(ctx, m.lane, &publish)
		failed := m.settlements(at.Namespace, c.Jobs, moved, &settle)
		m.store.Run(ctx, m.lane, &settle)
		if !more || failed > 0 && len(settle.Acks) == 0 {
			return
		}
	}
	m.store.ends.add(at)
}

// settlements acks what was published, and gives back the rest for a while: a full queue makes
// room. It returns how many those are.
func (m *Mover) settlements(ns *Namespace, jobs []Job, moved []*Publish, to *Batch) (failed int) {
	for i, p := range moved {
		switch {
		case p == nil:
		case p.Err == nil:
			to.Acks = append(to.Acks, &Ack{Namespace: ns, Queue: outbox, Ref: jobs[i].Ref})
		default:
			failed++
			to.Settles = append(to.Settles, &Settle{
				Namespace: ns,
				Queue:     outbox,
				Ref:       jobs[i].Ref,
				Attempt:   jobs[i].Attempt,
				Verb:      Nack,
				After:     moveEvery,
			})
		}
	}
	return failed
}

// followUp is the publish of a job of the outbox: lines of the time, the queue that wants to
// hear, the queue, the sequence, the caller's id, the event; the rest is the result.
func followUp(ns *Namespace, j *Job) (*Publish, error) {
	parts := bytes.SplitN(j.Payload, []byte("\n"), 7)
	if len(parts) != 7 {
		return nil, fmt.Errorf("it has %d lines", len(parts))
	}
	at, _ := number(parts[0])
	seq, _ := number(parts[3])
	f := FollowUp{
		Event:  string(parts[5]),
		Queue:  string(parts[2]),
		AtMS:   at,
		Result: asJSON(parts[6]),
	}
	if f.Event == "prepared" {
		f.PublishedMS = seq / 1000
	}
	f.ID = string(ns.AppendID(nil, j.Shard, f.Queue, seq, string(parts[4])))
	payload, err := json.Marshal(f)
	queue := string(parts[1])
	if err != nil || !partition.ValidQueue(queue) {
		return nil, fmt.Errorf("for the queue %.40q: %w", queue, err)
	}
	p := &Publish{
		Namespace: ns,
		Queue:     queue,
		Tries:     ns.Tries(queue),
		Key:       fmt.Sprintf("on_end %d-%d", j.Seq, j.Shard),
		follows:   true,
		KeyTTL:    moveKey,
		Messages:  []Message{{Payload: payload}},
		By:        "on_end",
	}
	p.Shard = ns.HomeOf(p, 0)
	return p, nil
}
