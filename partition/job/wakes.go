package job

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/lifecycle"
)

const (
	wakesLinger = 30 * time.Second // how long a queue stays subscribed after its last Unwant
	// maxResting is how many queues stay subscribed that nobody wants, at most: a client may poll
	// any names, for a moment each.
	maxResting = 20_000
	wakesTick  = time.Second
	wakesPing  = 2 * time.Second // a connection that brings nothing for two of these is dead
)

// WakeKind is the kind of a WakeEvent.
type WakeKind uint8

// The kinds.
const (
	// WakeSubscribed: the wakes of the queue are heard from now on. It comes after each Want, at
	// once where the queue is subscribed.
	WakeSubscribed WakeKind = iota + 1
	// WakeHeard: the queue had no ready job, and has some now.
	WakeHeard
	// WakeLost: wakes of any wanted queue may have been missed. WakeSubscribed follows for each.
	WakeLost
	// WakeRestart: the workers of the namespace are to restart, so their claims end without jobs.
	WakeRestart
	// WakeEnded: a job that was awaited has ended. Its queue is EndsQueue.
	WakeEnded
)

// EndsQueue, wanted as a queue is, stands for the ends of the jobs of a shard that are awaited: see
// Store.Await. No caller can use the name.
const EndsQueue = "!ends"

// A WakeEvent is what happened to the subscriptions. WakeLost and WakeRestart have no queue.
type WakeEvent struct {
	Kind      WakeKind
	Namespace string
	Shard     int
	Queue     string
	Count     int   // WakeHeard: jobs that became ready, at least
	Seq       int64 // WakeEnded: of the job
}

// Wakes tells this process when queues have ready jobs again, by subscriptions: one
// connection to the server, or to each master of a Redis Cluster that is concerned.
type Wakes struct {
	*lifecycle.Loop
	store  *Store
	on     func(WakeEvent)
	linger time.Duration
	change lifecycle.Signal
	outage backend.OutageLog

	mu      sync.Mutex           // of what follows, and of the entries
	entries map[string]*wanted   // by channel
	fresh   []*wanted            // that need a connection
	resting []*wanted            // that nobody wants, about by when they were wanted last
	links   map[string]*wakeLink // by address
	fails   map[string]int       // by address, in a row
	retry   map[string]time.Time // by address
	failing bool                 // the outage is logged
	late    []*wanted            // of fresh, whose server has a back-off
	timed   bool                 // a timer makes late fresh again
	events  eventQueue
}

// wanted is a queue that somebody wants wakes of, or did until lately.
type wanted struct {
	sh        *shard
	channel   string
	event     WakeEvent // its namespace, shard and queue
	wants     int
	resting   bool      // it is in Wakes.resting
	unwanted  time.Time // since when wants is 0
	link      *wakeLink // nil: none yet
	sent      bool      // subscribe was sent
	confirmed bool
	leaving   bool // unsubscribe was sent
}

// A Listener tells when queues have jobs again, from Start to Stop. A WakeSubscribed follows each Want. Events come
// one at a time, on any goroutine, and under no lock that Want or Unwant takes.
type Listener interface {
	Want(ns *Namespace, shard int, queue string)
	Unwant(ns *Namespace, shard int, queue string)
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// Listen makes the wakes of the store.
func (s *Store) Listen(on func(WakeEvent)) Listener { return newWakes(s, on) }

// newWakes makes the wakes of a store. on is called for each event, one at a time, without a
// lock; it may call Want and Unwant.
func newWakes(s *Store, on func(WakeEvent)) *Wakes {
	w := &Wakes{
		store:   s,
		on:      on,
		linger:  wakesLinger,
		change:  lifecycle.NewSignal(),
		entries: map[string]*wanted{},
		links:   map[string]*wakeLink{},
		fails:   map[string]int{},
		retry:   map[string]time.Time{},
		outage: backend.OutageLog{
			Log:   s.log,
			Level: zap.WarnLevel,
			Began: "wakes of queues are not heard: polls ask at intervals",
			Ended: "wakes of queues are heard again",
		},
	}
	w.Loop = lifecycle.New("wakes", nil, w.run)
	w.events.init()
	return w
}

// Want subscribes to a queue of a shard. Each Want has its Unwant. It does nothing for a shard that
// the namespace does not have: as far as this process knows.
func (w *Wakes) Want(ns *Namespace, shard int, queue string) {
	sh := ns.shardAt(shard)
	if sh == nil {
		return
	}
	channel := sh.channel + queue
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[channel]
	if e == nil {
		e = &wanted{
			sh:      sh,
			channel: channel,
			event:   WakeEvent{Namespace: ns.Name, Shard: shard, Queue: queue},
		}
		w.entries[channel] = e
	}
	e.wants++
	if e.confirmed && !e.leaving {
		w.tell(e, WakeSubscribed, 0)
	} else if e.link == nil && e.wants == 1 {
		w.fresh = append(w.fresh, e)
		w.change.Ring()
	}
}

// Unwant takes a Want back. The queue stays subscribed for 30s.
func (w *Wakes) Unwant(ns *Namespace, shard int, queue string) {
	sh := ns.shardAt(shard)
	if sh == nil {
		return
	}
	channel := sh.channel + queue
	w.mu.Lock()
	defer w.mu.Unlock()
	e := w.entries[channel]
	if e == nil || e.wants == 0 {
		return
	}
	if e.wants--; e.wants > 0 {
		return
	}
	e.unwanted = time.Now()
	if !e.resting {
		e.resting = true
		w.resting = append(w.resting, e)
	}
	if len(w.resting) > maxResting {
		w.leaveOldest(0)
	}
}

// leaveOldest takes the first queue out of resting. Where nobody has wanted it for long enough,
// its subscription ends; otherwise it is put back at the end.
func (w *Wakes) leaveOldest(longEnough time.Duration) {
	e := w.resting[0]
	w.resting = w.resting[1:]
	e.resting = false
	switch {
	case e.wants > 0 || e.leaving || w.entries[e.channel] != e:
	case time.Since(e.unwanted) < longEnough || e.sent && !e.confirmed:
		e.resting = true
		w.resting = append(w.resting, e)
	case e.sent:
		e.link.add(e)
	default:
		delete(w.entries, e.channel)
	}
}

// tell queues an event about a queue.
func (w *Wakes) tell(e *wanted, kind WakeKind, count int) {
	event := e.event
	event.Kind, event.Count = kind, count
	w.events.add(event)
}

func (w *Wakes) run(ctx context.Context) {
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { w.events.deliver(ctx, w.on) })
	tick := time.NewTicker(wakesTick)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			w.review()
		case <-w.change:
		}
		w.assign(ctx, &running)
	}
}

// review looks for queues that nobody wants any more, and for those without a connection.
func (w *Wakes) review() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for range len(w.resting) {
		w.leaveOldest(w.linger)
	}
	w.fresh, w.late = w.fresh[:0], w.late[:0]
	unheard := false
	for _, e := range w.entries {
		if e.link == nil && e.wants > 0 {
			w.fresh = append(w.fresh, e)
		}
		unheard = unheard || e.wants > 0 && !e.confirmed
	}
	if w.failing && !unheard {
		w.failing = false
		clear(w.fails)
		w.outage.End()
	}
}

// assign gives each queue that needs one a connection.
func (w *Wakes) assign(ctx context.Context, running *sync.WaitGroup) {
	w.mu.Lock()
	list := w.fresh
	w.fresh = nil
	w.mu.Unlock()
	servers := map[*shard]*redis.Client{}
	for _, e := range list {
		if _, ok := servers[e.sh]; !ok {
			servers[e.sh] = w.store.master(ctx, e.sh)
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	var soonest time.Time
	for _, e := range list {
		client := servers[e.sh]
		if client == nil || e.link != nil || e.wants == 0 || w.entries[e.channel] != e {
			continue // the next review tries again
		}
		addr := client.Options().Addr
		if retry := w.retry[addr]; now.Before(retry) {
			w.late = append(w.late, e)
			if soonest.IsZero() || retry.Before(soonest) {
				soonest = retry
			}
			continue
		}
		if w.links[addr] == nil {
			link := newWakeLink(w, client, addr)
			w.links[addr] = link
			running.Go(func() { link.run(ctx) })
		}
		e.link = w.links[addr]
		e.link.add(e)
	}
	if !soonest.IsZero() && !w.timed {
		w.timed = true
		time.AfterFunc(soonest.Sub(now), w.backOffEnds)
	}
}

func (w *Wakes) backOffEnds() {
	w.mu.Lock()
	w.fresh = append(w.fresh, w.late...)
	w.late = nil
	w.timed = false
	w.mu.Unlock()
	w.change.Ring()
}

// master is the client of the server that serves a shard; nil: not known now.
func (s *core) master(ctx context.Context, sh *shard) *redis.Client {
	client, _ := s.backend.ClientFor(ctx, sh.Ledger).(*redis.Client)
	return client
}

// lost takes the queues of a connection that ended away from it. ctx ends with Stop.
func (w *Wakes) lost(ctx context.Context, link *wakeLink, err error) {
	w.mu.Lock()
	if w.links[link.addr] == link {
		delete(w.links, link.addr)
	}
	had := false
	for _, e := range w.entries {
		if e.link == link {
			had = true
			if e.wants == 0 {
				delete(w.entries, e.channel)
				continue
			}
			e.link = nil
			e.sent = false
			e.confirmed = false
			e.leaving = false
			w.fresh = append(w.fresh, e)
		}
	}
	if had {
		w.events.add(WakeEvent{Kind: WakeLost})
		for _, e := range w.entries {
			if e.confirmed && !e.leaving {
				w.tell(e, WakeSubscribed, 0)
			}
		}
	}
	w.fails[link.addr]++
	if !w.failing && ctx.Err() == nil {
		w.failing = true
		w.outage.Begin(zap.String("server", link.addr), zap.Error(err))
	}
	backoff := min(time.Second, 25*time.Millisecond<<min(w.fails[link.addr], 6))
	w.retry[link.addr] = time.Now().Add(backoff/2 + rand.N(backoff/2)) // #nosec G404 -- jitter
	w.mu.Unlock()
	w.change.Ring()
}

// received takes a message of a connection. It returns an error where the connection cannot
// be used further.
func (w *Wakes) received(link *wakeLink, message any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch m := message.(type) {
	case *redis.Message:
		if e := w.entries[m.Channel]; e != nil && e.link == link {
			if e.event.Queue == EndsQueue {
				ended := e.event
				ended.Kind = WakeEnded
				ended.Seq, _ = strconv.ParseInt(m.Payload, 10, 64)
				w.events.add(ended)
				return nil
			}
			count, _ := strconv.Atoi(m.Payload)
			w.tell(e, WakeHeard, max(1, count))
		}
	case *redis.Subscription:
		e := w.entries[m.Channel]
		if e == nil || e.link != link {
			return nil
		}
		switch {
		case m.Kind == "subscribe" || m.Kind == "ssubscribe":
			e.confirmed = true
			delete(w.fails, link.addr)
			w.tell(e, WakeSubscribed, 0)
		case e.leaving && e.wants == 0:
			delete(w.entries, m.Channel)
		case e.leaving: // wanted again meanwhile
			e.sent = false
			e.confirmed = false
			e.leaving = false
			link.add(e)
		default:
			return fmt.Errorf("the server ended the subscription of %s: its slot moved", m.Channel)
		}
	}
	return nil
}
