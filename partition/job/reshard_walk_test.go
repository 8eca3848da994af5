package job

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

var (
	walkCount = flag.Int("reshard-walks", 10, "how many walks TestQueuesChangeTheirShardsInWalks takes")
	walkSeed  = flag.Uint64("reshard-seed", 0, "seed of its first walk")
)

// Several processes publish to queues, claim from them and settle while their shards change. Some are
// frozen in the middle of a request, and go on many steps later with what they knew.
func TestQueuesChangeTheirShardsInWalks(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	client := server.Client()
	for i := range *walkCount {
		seed := *walkSeed + uint64(i)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { takeWalk(t, server.Addr, client, seed) }) {
			return
		}
	}
}

// A walkJob is one job as its publisher means it.
type walkJob struct {
	uid, queue     string
	key, callerID  string
	plain          bool // neither delayed nor with a caller's id
	sent, stored   int  // steps; stored 0: not confirmed
	id             string
	unsure         bool // a claim whose answer is not known may have had it
	claims, tries  int
	ended, stopped bool // its end was confirmed; it may have been ended
}

type walkProcess struct {
	name   string
	store  *Store
	ns     *Namespace
	lane   *Lane
	wire   *walkWire
	under  chan func()
	frozen bool
}

type walker struct {
	*testing.T
	rnd       *rand.Rand
	addr      string
	client    *redis.Client
	prefix    string
	processes []*walkProcess
	opened    int
	step      int
	queues    []string
	jobs      map[string]*walkJob // by uid
	order     []*walkJob
	held      []Job
	firstSent map[string]int // by queue: the latest send of a plain job that was claimed first
	firstOf   map[string]string
	trace     []string
	ending    bool
}

func takeWalk(t *testing.T, addr string, client *redis.Client, seed uint64) {
	w := &walker{T: t, rnd: rand.New(rand.NewPCG(seed, 24)), addr: addr, client: client, prefix: fmt.Sprint("w", seed),
		jobs: map[string]*walkJob{}, firstSent: map[string]int{}, firstOf: map[string]string{}}
	for i := range 1 + w.rnd.IntN(4) {
		w.queues = append(w.queues, fmt.Sprint("q", i))
	}
	if err := client.FlushAll(context.Background()).Err(); err != nil {
		t.Fatal(err)
	}
	shards := 1 + w.rnd.IntN(3)
	for range 2 + w.rnd.IntN(3) {
		w.open(shards)
	}
	steps := 80 + w.rnd.IntN(80)
	for w.step = 1; w.step <= steps; w.step++ {
		w.takeStep()
	}
	w.end()
}

func (w *walker) violation(format string, args ...any) {
	w.Helper()
	w.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace[max(0, len(w.trace)-80):], "\n"))
}

func (w *walker) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%4d ", w.step)+fmt.Sprintf(format, args...))
}

func (w *walker) open(shards int) {
	w.opened++
	p := &walkProcess{name: fmt.Sprint("#", w.opened), wire: newWalkWire(w.T, w.addr)}
	b, err := backend.Open(backend.Config{URL: "redis://" + p.wire.addr}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { p.wire.open(); _ = b.Close() })
	policy := DefaultPolicy()
	policy.Shards = shards
	if p.store, err = Open(Config{Prefix: w.prefix, Volatile: true, Namespaces: map[string]Policy{"mail": policy}}, b,
		prometheus.NewRegistry(), zap.NewNop()); err != nil {
		w.Fatal(err)
	}
	redistest.Until(w.T, 30*time.Second, "the store can be used", func() bool {
		_, err := p.store.Check(context.Background())
		return err == nil
	})
	p.ns, p.lane = p.store.Namespace("mail"), p.store.NewLane()
	w.processes = append(w.processes, p)
	w.note("%s opens with %d shards", p.name, shards)
}

func (w *walker) do(p *walkProcess, in int, op func() func()) {
	if w.ending || w.rnd.IntN(in) > 0 {
		op()()
		return
	}
	p.wire.shut(w.rnd.IntN(8))
	done := make(chan func(), 1)
	go func() { done <- op() }()
	select {
	case finish := <-done:
		p.wire.open()
		finish()
	case <-p.wire.stuck:
		w.note("%s freezes", p.name)
		p.frozen, p.under = true, done
	}
}

func (w *walker) thaw(p *walkProcess) {
	if !p.frozen {
		return
	}
	w.note("%s goes on", p.name)
	p.wire.open()
	p.frozen = false
	(<-p.under)()
	p.under = nil
}

func (w *walker) takeStep() {
	p := w.processes[w.rnd.IntN(len(w.processes))]
	if p.frozen {
		if w.rnd.IntN(6) == 0 {
			w.thaw(p)
		}
		return
	}
	if w.rnd.IntN(40) == 0 {
		w.note("%s will miss an answer", p.name)
		p.wire.loseNext(true)
	}
	switch n := w.rnd.IntN(100); {
	case n < 32:
		w.publish(p)
	case n < 58:
		w.claim(p)
	case n < 74:
		w.settle(p)
	case n < 82:
		w.reshard(p)
	case n < 90:
		w.tidy(p)
	case n < 93:
		p.store.space.ReadRecords(context.Background(), []*space.Home{p.ns.Home})
	case n < 95:
		w.dead(p)
	case n < 97:
		w.promote(p)
	case len(w.processes) > 2:
		w.processes = slices.DeleteFunc(w.processes, func(o *walkProcess) bool { return o == p })
		w.note("%s ends", p.name)
		w.open(1 + w.rnd.IntN(3))
	}
}

func (w *walker) harmless(what string, err error) {
	w.Helper()
	if err != nil && !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrUnknown) {
		w.violation("%s: %v", what, err)
	}
}

func (w *walker) publish(p *walkProcess) {
	var j *walkJob
	if w.rnd.IntN(4) == 0 && len(w.order) > 0 {
		if j = w.order[max(0, len(w.order)-1-w.rnd.IntN(10))]; j.key == "" {
			j = nil
		}
	}
	if j == nil {
		j = &walkJob{uid: strconv.Itoa(len(w.order)), queue: w.queues[w.rnd.IntN(len(w.queues))], sent: w.step, tries: 3}
		if w.rnd.IntN(3) == 0 {
			j.key = "k" + j.uid
		}
		if w.rnd.IntN(4) == 0 {
			j.callerID = fmt.Sprint("c", w.rnd.IntN(3))
		}
		j.plain = j.callerID == ""
		w.jobs[j.uid], w.order = j, append(w.order, j)
	}
	r := &Publish{Namespace: p.ns, Queue: j.queue, Tries: j.tries, Key: j.key, CallerID: j.callerID,
		Messages: []Message{{Payload: []byte(j.uid)}}}
	if w.rnd.IntN(8) == 0 {
		j.plain, r.Delay = false, time.Millisecond
	}
	r.Shard = p.ns.HomeOf(r, w.rnd.Uint64())
	w.do(p, 6, func() func() {
		p.store.Run(context.Background(), p.lane, &Batch{Publishes: []*Publish{r}})
		return func() {
			w.note("%s publishes %s to %s key %q id %q: shard %d repeated %v exists %v, %v", p.name, j.uid, j.queue, j.key, j.callerID,
				r.Shard, r.Repeated, r.Exists, r.Err)
			w.harmless("publish", r.Err)
			if r.Err != nil || r.Exists {
				return
			}
			id := p.ns.ID(r.Shard, r.Queue, r.First, r.CallerID)
			if j.id != "" && j.id != id {
				w.violation("job %s is stored as %s and as %s", j.uid, j.id, id)
			}
			if j.id = id; j.stored == 0 && !r.Repeated {
				j.stored = w.step
			}
		}
	})
}

func (w *walker) claim(p *walkProcess) {
	queue := w.queues[w.rnd.IntN(len(w.queues))]
	shards := p.ns.Shards(queue)
	c := &Claim{Namespace: p.ns, Queues: []string{queue}, TTR: time.Hour, Count: 1 + w.rnd.IntN(2),
		Shard: shards[w.rnd.IntN(len(shards))]}
	finished := false
	w.do(p, 6, func() func() {
		p.store.Run(context.Background(), p.lane, &Batch{Claims: []*Claim{c}})
		return func() { finished = true; w.claimed(p, c) }
	})
	if !finished {
		w.doubt(queue)
	}
}

// doubt notes that nobody knows whether the jobs of a queue were claimed.
func (w *walker) doubt(queue string) {
	for _, j := range w.order {
		if j.queue == queue {
			j.unsure = true
		}
	}
}

func (w *walker) claimed(p *walkProcess, c *Claim) {
	queue := c.Queues[0]
	w.note("%s claims %s in shard %d: %d jobs, older %v, %v", p.name, queue, c.Shard, len(c.Jobs), c.Older, c.Err)
	w.harmless("claim", c.Err)
	if errors.Is(c.Err, backend.ErrUnknown) {
		w.doubt(queue)
	}
	for _, job := range c.Jobs {
		j := w.jobs[string(job.Payload)]
		w.note("   %s, attempt %d, %s", j.uid, job.Attempt, job.ID)
		if j.id != "" && j.id != job.ID {
			w.violation("job %s is stored as %s and as %s", j.uid, j.id, job.ID)
		}
		if j.ended {
			w.violation("job %s is claimed after its end was confirmed", j.uid)
		}
		if j.id = job.ID; job.Attempt > j.tries {
			w.violation("job %s is claimed %d times of %d", j.uid, job.Attempt, j.tries)
		}
		if j.claims++; j.claims == 1 && j.plain {
			if !j.unsure && j.stored != 0 && w.firstSent[queue] > j.stored {
				w.violation("job %s, stored at step %d, comes after %s, sent at step %d", j.uid, j.stored, w.firstOf[queue], w.firstSent[queue])
			}
			if j.sent > w.firstSent[queue] {
				w.firstSent[queue], w.firstOf[queue] = j.sent, j.uid
			}
		}
		w.held = append(w.held, job)
	}
}

// settle acks, nacks or buries a job that somebody holds, by its id.
func (w *walker) settle(p *walkProcess) {
	if len(w.held) == 0 {
		return
	}
	i := w.rnd.IntN(len(w.held))
	job := w.held[i]
	w.held = slices.Delete(w.held, i, i+1)
	j := w.jobs[string(job.Payload)]
	ref, known := p.ns.ParseID(job.Queue, job.ID)
	if !known {
		w.violation("%s is no id of %s", job.ID, job.Queue)
	}
	if w.rnd.IntN(3) > 0 || w.ending {
		a := &Ack{Namespace: p.ns, Queue: job.Queue, Ref: ref}
		twice := j.stopped
		j.stopped = true
		w.do(p, 6, func() func() {
			p.store.Run(context.Background(), p.lane, &Batch{Acks: []*Ack{a}})
			return func() {
				w.note("%s acks %s: %v, %v", p.name, j.uid, a.Acked, a.Err)
				w.harmless("ack", a.Err)
				if a.Err == nil && !a.Acked && !twice {
					w.violation("an ack of job %s finds none", j.uid)
				}
				if j.ended = j.ended || a.Err == nil; a.Err != nil {
					w.held = append(w.held, job)
				}
			}
		})
		return
	}
	t := &Settle{Namespace: p.ns, Queue: job.Queue, Ref: ref, Attempt: job.Attempt, Verb: Nack}
	if w.rnd.IntN(4) == 0 {
		t.Verb = Bury
	}
	w.do(p, 6, func() func() {
		p.store.Run(context.Background(), p.lane, &Batch{Settles: []*Settle{t}})
		return func() {
			w.note("%s settles %s: %v, %v", p.name, j.uid, t.State, t.Err)
			w.harmless("settle", t.Err)
		}
	})
}

func (w *walker) reshard(p *walkProcess) {
	r := partition.ReshardRequest{Shards: 1 + w.rnd.IntN(5), Again: w.rnd.IntN(3) == 0, By: p.name}
	w.do(p, 2, func() func() {
		n, err := p.store.Reshard(context.Background(), p.ns, r)
		return func() {
			w.note("%s reshards to %d: layout %d, %v", p.name, r.Shards, n, err)
			w.harmless("reshard", err)
		}
	})
}

func (w *walker) tidy(p *walkProcess) {
	w.do(p, 4, func() func() {
		p.store.lookAtOlder(context.Background(), p.ns)
		p.store.tidyLayouts(context.Background(), p.ns)
		return func() {
			var all []string
			for _, l := range p.ns.Layouts().All {
				all = append(all, fmt.Sprintf("%d×%d closed %v", l.N, len(l.Shards), l.Closed != 0))
			}
			w.note("%s tidies: %s", p.name, strings.Join(all, ", "))
		}
	})
}

// dead makes dead letters ready again, which then have a further try, or deletes them.
func (w *walker) dead(p *walkProcess) {
	queue := w.queues[w.rnd.IntN(len(w.queues))]
	if n, err := p.store.ActOnDead(context.Background(), &DeadAct{Namespace: p.ns, Queue: queue, Verb: RespawnDead, Limit: 100}); err == nil {
		w.note("%s respawns %d of %s", p.name, n, queue)
	}
	for _, j := range w.order {
		j.tries++ // of those that it respawned
	}
}

func (w *walker) promote(p *walkProcess) {
	var all []place
	for _, sh := range p.ns.open() {
		all = append(all, place{p.ns, sh})
	}
	NewPromoter(p.store).look(context.Background(), all)
}

// end lets everybody go on, and has all jobs acked: then no older layout is open, and the ledger adds up.
func (w *walker) end() {
	w.ending = true
	for _, p := range w.processes {
		w.thaw(p)
		p.wire.loseNext(false)
	}
	p := w.processes[0]
	ctx := context.Background()
	for deadline := time.Now().Add(time.Minute); ; {
		w.step++
		for _, o := range w.processes {
			o.store.space.ReadRecords(ctx, []*space.Home{o.ns.Home})
			w.harmless("revert", o.store.Revert(ctx, o.lane))
		}
		w.promote(p)
		w.dead(p)
		for _, queue := range w.queues {
			for _, shard := range p.ns.Shards(queue) {
				c := &Claim{Namespace: p.ns, Shard: shard, Queues: []string{queue}, TTR: time.Hour, Count: 100}
				p.store.Run(ctx, p.lane, &Batch{Claims: []*Claim{c}})
				w.claimed(p, c)
			}
		}
		for len(w.held) > 0 {
			w.settle(p)
		}
		// What processes held that have ended comes back once its lease is over.
		for _, sh := range p.ns.open() {
			members, err := w.client.ZRange(ctx, sh.lease, 0, -1).Result()
			for _, member := range members {
				err = errors.Join(err, w.client.ZAddXX(ctx, sh.lease, redis.Z{Score: 1, Member: member}).Err())
			}
			if err != nil {
				w.Fatal(err)
			}
		}
		p.store.lookAtOlder(ctx, p.ns)
		p.store.tidyLayouts(ctx, p.ns)
		l, err := p.store.Ledger(ctx, p.ns)
		if err != nil {
			w.Fatal(err)
		}
		layouts := p.ns.Layouts()
		if l.Dead+l.Ready+l.Delayed+l.Leased == 0 && len(layouts.Older(layouts.Current().N)) == 0 {
			w.check(p, l)
			return
		}
		if time.Now().After(deadline) {
			w.violation("it never runs empty: %+v, %d older layouts", l, len(layouts.Older(layouts.Current().N)))
		}
	}
}

func (w *walker) check(p *walkProcess, l Ledger) {
	if residual, err := p.store.Audit(context.Background(), p.ns); err != nil || residual != 0 {
		w.violation("residual %d, %v", residual, err)
	}
	stored := int64(0)
	for _, j := range w.order {
		if j.id != "" {
			stored++
		}
		if j.stored != 0 && j.claims == 0 {
			w.violation("job %s was stored and never claimed", j.uid)
		}
	}
	if l.Published != stored || l.Acked != stored || l.Lost != 0 || l.Expired != 0 {
		w.violation("the ledger is %+v, %d jobs were stored", l, stored)
	}
	for _, o := range w.processes {
		if other, err := o.store.Ledger(context.Background(), o.ns); err != nil || other != l {
			w.violation("%s has the ledger %+v, %s %+v, %v", p.name, l, o.name, other, err)
		}
	}
}

// A walkWire is what one process sends to Redis and is answered. It can hold back what is sent, and lose
// an answer.
type walkWire struct {
	addr  string
	stuck chan struct{} // a request waits

	mu    sync.Mutex
	let   int           // requests that pass before it shuts; negative: all
	freed chan struct{} // closes when it opens again
	lose  bool
}

func newWalkWire(t *testing.T, target string) *walkWire {
	w := &walkWire{addr: redistest.FreeAddr(t), stuck: make(chan struct{}, 1), let: -1, freed: make(chan struct{})}
	redistest.Forward(t, w.addr, target, w.serve)
	t.Cleanup(w.open)
	return w
}

func (w *walkWire) shut(after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stuck:
	default:
	}
	w.let = after
}

func (w *walkWire) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.let = -1
	close(w.freed)
	w.freed = make(chan struct{})
}

func (w *walkWire) loseNext(lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = lose
}

// admit waits while the wire is shut, and reports whether the answer to a script is to be lost.
func (w *walkWire) admit(script bool) (lose bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.let == 0 {
		freed := w.freed
		select {
		case w.stuck <- struct{}{}:
		default:
		}
		w.mu.Unlock()
		<-freed
		w.mu.Lock()
	}
	w.let = max(w.let-1, -1)
	lose = script && w.lose
	w.lose = w.lose && !lose
	return lose
}

func (w *walkWire) serve(client, server net.Conn) {
	var answers sync.WaitGroup
	losing := make(chan struct{})
	answers.Go(func() {
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			select {
			case <-losing:
				return
			default:
			}
			if err != nil {
				return
			}
			if _, err := client.Write(buf[:n]); err != nil {
				return
			}
		}
	})
	buf := make([]byte, 64<<10)
	for lost := false; ; {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		if w.admit(bytes.Contains(buf[:n], []byte("evalsha"))) && !lost {
			lost = true
			close(losing)
		}
		if _, err := server.Write(buf[:n]); err != nil {
			break
		}
	}
	select {
	case <-losing: // what was sent runs; the answer ends the connection
	default:
		server.Close()
	}
	answers.Wait()
}
