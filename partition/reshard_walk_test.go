package partition

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
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
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/space"
)

var (
	walkCount = flag.Int("reshard-walks", 40, "how many walks TestShardsChangeInWalks takes")
	walkSeed  = flag.Uint64("reshard-seed", 0, "seed of its first walk")
)

// Several processes on one namespace take random steps while its shards change. Some are frozen in
// the middle of a step, and go on many steps later with what they knew.
func TestShardsChangeInWalks(t *testing.T) {
	t.Parallel()
	seedBug(t, os.Getenv(seededBug))
	var servers []*walkServer
	for range 2 {
		server := redistest.Start(t)
		servers = append(servers, &walkServer{server.Addr, server.Client()})
	}
	for i := range *walkCount {
		seed := *walkSeed + uint64(i)
		if !t.Run(fmt.Sprint(seed), func(t *testing.T) { takeWalk(t, servers, seed) }) {
			return
		}
	}
}

const walkNamespace = "kart"

type walkServer struct {
	addr string
	*redis.Client
}

// A walker is the world of one walk: the processes, and what is known of what they did.
type walker struct {
	*testing.T
	judge
	rnd       *rand.Rand
	servers   []*walkServer // of the pools a and b; or one without a name
	prefix    string
	processes []*process
	opened    int
	mood      int
	names     []string
	rollbacks bool                   // as after failovers: then neither order nor counts of single entries are promised
	records   [2][]map[string]string // by server
	forgotten int
	settledOn bool // the record lost a layout; a failover takes longer than the second in which its number could come again
	trace     []string
	ending    bool
}

// A process is a Store with a wire of its own.
type process struct {
	name     string
	store    *Store
	ns       *Namespace
	janitor  *Janitor
	registry *prometheus.Registry
	wire     *wire
	frozen   bool
	under    chan func() // the operation in which it is frozen; nil: none
}

func takeWalk(t *testing.T, servers []*walkServer, seed uint64) {
	rnd := rand.New(rand.NewPCG(seed, 24))
	w := &walker{T: t, judge: newJudge(), rnd: rnd, servers: servers[:1],
		prefix: fmt.Sprintf("w%d", seed), rollbacks: rnd.IntN(6) == 0, mood: rnd.IntN(4)}
	w.judge.fail = w.violation
	w.judge.rollbacks = w.rollbacks
	for i := range 1 + rnd.IntN([4]int{6, 6, 6, 2}[w.mood]) {
		w.names = append(w.names, fmt.Sprint("p", i))
	}
	if rnd.IntN(3) == 0 {
		w.servers = servers
	}
	for _, server := range servers {
		server.FlushAll(context.Background())
	}
	shards := 1 + rnd.IntN(4)
	if w.rollbacks {
		shards = 1 // so that no janitor asks for more
	}
	for range 2 + rnd.IntN(2) {
		w.open(shards)
	}
	steps := 60 + rnd.IntN(80)
	for w.step = 1; w.step <= steps; w.step++ {
		w.takeStep()
		if rnd.IntN(8) == 0 {
			w.checkShards()
		}
	}
	w.end()
}

func (w *walker) violation(format string, args ...any) {
	w.Helper()
	from := max(0, len(w.trace)-*walkTrace)
	w.Fatalf("%s\n%s", fmt.Sprintf(format, args...), strings.Join(w.trace[from:], "\n"))
}

var walkTrace = flag.Int("reshard-trace", 60, "how many steps before a violation are shown")

func (w *walker) note(format string, args ...any) {
	w.trace = append(w.trace, fmt.Sprintf("%4d ", w.step)+fmt.Sprintf(format, args...))
}

// open starts a further process.
func (w *walker) open(shards int) *process {
	w.opened++
	p := &process{name: fmt.Sprintf("#%d", w.opened), wire: newWire(w.T, w.servers...)}
	policy := DefaultPolicy()
	policy.Shards, policy.Linger, policy.Batch, policy.MaxAge = shards, 0, 4, 2*time.Hour
	cfg := Config{URL: "redis://" + p.wire.addrs[0], Prefix: w.prefix, Namespaces: map[string]Policy{walkNamespace: policy}}
	if len(w.servers) > 1 {
		cfg.Pools, cfg.Pool = map[string]*backend.Backend{}, "a"
		for i, name := range walkPools {
			b, err := backend.Open(backend.Config{URL: "redis://" + p.wire.addrs[i]}, prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				w.Fatal(err)
			}
			w.Cleanup(func() { _ = b.Close() })
			cfg.Pools[name] = b
		}
		if !w.rollbacks && w.rnd.IntN(3) == 0 && w.servers[1].Exists(context.Background(), w.record()).Val() > 0 {
			cfg.Pool = "b" // its file was changed since
		}
		cfg.Backend = cfg.Pools[cfg.Pool]
	}
	s, err := Open(cfg, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { p.wire.open(); _ = s.Close() })
	p.store, p.ns, p.janitor = s, s.Namespace(walkNamespace), NewJanitor(s)
	if err := s.Ping(context.Background()); err != nil {
		w.Fatal(err)
	}
	w.processes = append(w.processes, p)
	w.note("%s opens, configured with %d shards in pool %q", p.name, shards, cfg.Pool)
	return p
}

// do runs an operation of a process to its end, or until it is frozen in it. What the operation
// returns is done with its result.
func (w *walker) do(p *process, op func() func()) { w.doOrFreeze(p, 5, 6, op) }

// doOrFreeze freezes one operation in so many, after less than so many requests.
func (w *walker) doOrFreeze(p *process, in, requests int, op func() func()) {
	if w.rnd.IntN(in) > 0 {
		op()()
		return
	}
	p.wire.shut(w.rnd.IntN(requests))
	done := make(chan func(), 1)
	go func() { done <- op() }()
	select {
	case finish := <-done:
		if w.rnd.IntN(2) == 0 {
			p.wire.open()
		} else {
			p.frozen = true
		}
		finish()
	case <-p.wire.stuck:
		w.note("%s freezes", p.name)
		p.frozen, p.under = true, done
	}
}

func (w *walker) thaw(p *process) {
	w.note("%s goes on", p.name)
	p.wire.open()
	p.frozen = false
	if p.under != nil {
		finish := <-p.under
		p.under = nil
		finish()
	}
}

// awake is a process that can take a step.
func (w *walker) awake() *process {
	var all []*process
	for _, p := range w.processes {
		if !p.frozen {
			all = append(all, p)
		}
	}
	if len(all) == 0 {
		p := w.processes[w.rnd.IntN(len(w.processes))]
		w.thaw(p)
		return p
	}
	return all[w.rnd.IntN(len(all))]
}

func (w *walker) takeStep() {
	p := w.awake()
	if w.rnd.IntN(60) == 0 {
		p.wire.loseNext()
		w.note("%s will miss an answer", p.name)
	}
	steps := []struct {
		// In walks of all kinds, in those with many pauses, in those whose layouts close soon, in those
		// of operators who know different layouts.
		weights [4]int
		take    func(*process)
	}{
		{[4]int{26, 12, 20, 4}, w.produce},
		{[4]int{18, 10, 10, 3}, w.claim},
		{[4]int{14, 6, 6, 2}, w.settle},
		{[4]int{2, 8, 10, 1}, w.drainOnce},
		{[4]int{8, 9, 10, 12}, w.reshard},
		{[4]int{10, 14, 20, 2}, w.tidy},
		{[4]int{3, 3, 4, 14}, w.read},
		{[4]int{5, 14, 2, 16}, w.pause},
		{[4]int{6, 12, 4, 18}, w.resume},
		{[4]int{2, 4, 3, 1}, func(*process) { w.timePasses() }},
		{[4]int{1, 1, 1, 0}, w.purge},
		{[4]int{2, 2, 3, 1}, w.restart},
		{[4]int{2, 2, 2, 1}, func(*process) { w.fallBack() }},
		{[4]int{3, 3, 4, 1}, func(*process) { w.thawOne() }},
		{[4]int{2, 1, 3, 0}, func(*process) { w.runAhead() }},
		{[4]int{2, 1, 6, 0}, w.forget},
	}
	all := 0
	for _, s := range steps {
		all += s.weights[w.mood]
	}
	n := w.rnd.IntN(all)
	for _, s := range steps {
		if n -= s.weights[w.mood]; n < 0 {
			s.take(p)
			return
		}
	}
}

func (w *walker) thawOne() {
	if i := slices.IndexFunc(w.processes, func(p *process) bool { return p.frozen }); i >= 0 {
		w.thaw(w.processes[i])
	}
}

func (w *walker) reshard(p *process) {
	if w.settledOn {
		return
	}
	r := ReshardRequest{Shards: 1 + w.rnd.IntN(6), Again: w.rnd.IntN(3) == 0, By: p.name}
	if len(w.servers) > 1 && w.rnd.IntN(3) > 0 {
		r.Pool = walkPools[w.rnd.IntN(2)]
	}
	w.doOrFreeze(p, 2, 12+6*(len(w.servers)-1), func() func() {
		n, err := p.ns.store.Reshard(context.Background(), p.ns, r)
		return func() {
			w.note("%s reshards to %d, again %v, pool %q: layout %d, %v", p.name, r.Shards, r.Again, r.Pool, n, err)
			w.noBreakage("reshard", err)
		}
	})
}

// forget ends a closed layout. Then the account is what all ledgers say, which stay.
func (w *walker) forget(p *process) {
	all := p.ns.home.Layouts().All
	n := all[w.rnd.IntN(len(all))].N
	w.do(p, func() func() {
		_, err := p.ns.store.EndLayout(context.Background(), p.ns, LayoutEnd{N: n})
		return func() {
			w.note("%s forgets layout %d: %v", p.name, n, err)
			if !errors.Is(err, ErrLayoutInUse) {
				w.noBreakage("forget", err)
			}
			if err != nil || p.frozen || w.rollbacks {
				return
			}
			w.forgotten++
			p.read()
			o, err := p.ns.store.Overview(context.Background(), p.ns)
			sum, stored := w.checkShards()
			if l := o.Ledger; err == nil && (l.Accepted != sum.accepted || l.Delivered != sum.delivered ||
				l.Evicted != sum.evicted || l.Dead != sum.dead || l.Buffered != stored) {
				w.violation("the overview says %+v, the ledgers say %+v", l, sum)
			}
		}
	})
}

// tidy is what a janitor does.
func (w *walker) tidy(p *process) {
	whole := w.rnd.IntN(3) == 0
	w.do(p, func() func() {
		if whole {
			p.janitor.round(context.Background())
		} else if now, ok := p.store.Now(); ok {
			p.store.tidyLayouts(context.Background(), p.ns, now)
		}
		return func() { w.note("%s tidies: %s", p.name, p.known()) }
	})
}

func (w *walker) read(p *process) {
	w.do(p, func() func() {
		p.store.space.ReadRecords(context.Background(), []*space.Home{p.ns.home})
		return func() { w.note("%s reads: %s", p.name, p.known()) }
	})
}

// known are the layouts that a process knows.
func (p *process) known() string {
	var all []string
	for _, l := range p.ns.home.Layouts().All {
		state := ""
		if l.Closed != 0 {
			state = " closed"
		}
		all = append(all, fmt.Sprintf("%d×%d%s%s", l.N, len(l.Shards), l.Shards[0].Pool, state))
	}
	return strings.Join(all, ", ")
}

// restart replaces a process by one that is configured otherwise. What it held is lost.
func (w *walker) restart(p *process) {
	if p.ns == nil || len(w.processes) < 2 {
		return
	}
	if w.rollbacks { // every second it mends a record that fell back; the others may know less
		p.read()
	}
	w.processes = slices.DeleteFunc(w.processes, func(o *process) bool { return o == p })
	w.leases = slices.DeleteFunc(w.leases, func(l *walkLease) bool { return l.owner == p })
	w.note("%s ends", p.name)
	shards := 1 + w.rnd.IntN(4)
	if w.rollbacks {
		shards = 1
	}
	w.open(shards)
}

// timePasses ends all leases, and everything is due.
func (w *walker) timePasses() {
	if !w.ending {
		w.note("time passes: leases end")
	}
	w.lapse()
	ctx := context.Background()
	for _, server := range w.servers {
		pipe := server.Pipeline()
		for _, key := range w.keys("*ready") {
			for _, name := range w.names {
				pipe.ZAddXX(ctx, key, redis.Z{Score: 1, Member: name})
			}
		}
		if _, err := pipe.Exec(ctx); err != nil {
			w.Fatal(err)
		}
	}
}

// keys are those of the walk that match.
func (w *walker) keys(pattern string) []string {
	var all []string
	for _, server := range w.servers {
		keys, err := server.Keys(context.Background(), w.prefix+":"+pattern).Result()
		if err != nil {
			w.Fatal(err)
		}
		all = append(all, keys...)
	}
	slices.Sort(all)
	return all
}

// of is a client of the server that has a key of a shard.
func (w *walker) of(key string) *redis.Client {
	for _, server := range w.servers[1:] {
		if server.Exists(context.Background(), key).Val() > 0 {
			return server.Client
		}
	}
	return w.servers[0].Client
}

func (w *walker) record() string { return w.prefix + ":{" + walkNamespace + "}:layout" }

// walkPools are the names of the servers, where there are two.
var walkPools = []string{"a", "b"}

// fallBack is what a failover may do: the record, or the fence of a shard, is as before.
func (w *walker) fallBack() {
	if !w.rollbacks {
		return
	}
	ctx := context.Background()
	at := w.rnd.IntN(len(w.servers))
	record, client := w.record(), w.servers[at]
	switch w.rnd.IntN(4) {
	case 0:
		w.records[at] = append(w.records[at], client.HGetAll(ctx, record).Val())
	case 1, 2:
		w.settledOn = true
		for _, p := range w.processes {
			if p.frozen {
				w.thaw(p)
			}
		}
		client.Del(ctx, record)
		if n := len(w.records[at]); n > 0 {
			if old := w.records[at][w.rnd.IntN(n)]; len(old) > 0 {
				client.HSet(ctx, record, old)
			}
		}
		w.note("the record on server %d falls back to %v", at, client.HGetAll(ctx, record).Val())
	default:
		for _, key := range w.keys("*ledger") {
			client := w.of(key)
			f := client.HGetAll(ctx, key).Val()
			if f["fence"] == "" || f["closed"] != "" {
				continue
			}
			if f["lost"] == "moved" {
				client.HSet(ctx, key, "lost", f["lost_count"], "format", 1)
			}
			client.HDel(ctx, key, "fence", "mark", "record", "version", "lost_count")
			w.note("%s loses its fence", key)
			return
		}
	}
}

// runAhead is a master whose clock is ahead of the others: sequences of a shard begin above theirs.
func (w *walker) runAhead() {
	ledgers := w.keys("*ledger")
	if len(ledgers) == 0 {
		return
	}
	key, ahead := ledgers[w.rnd.IntN(len(ledgers))], time.Now().Add(time.Hour).UnixMicro()
	if high, _ := w.of(key).HGet(context.Background(), key, "high_water").Int64(); high < ahead {
		w.of(key).HSet(context.Background(), key, "high_water", ahead)
		w.note("the clock of %s is ahead", key)
	}
}

// noBreakage fails at an error that no fault of the network explains.
func (w *walker) noBreakage(what string, err error) {
	w.Helper()
	if err != nil && !errors.Is(err, ErrUnavailable) && !errors.Is(err, ErrUnknown) {
		w.violation("%s: %v", what, err)
	}
}

func (w *walker) name() string { return w.names[w.rnd.IntN(len(w.names))] }

// produce sends several groups in one call: new ones, some of one partition, and repeats of those
// with a key.
func (w *walker) produce(p *process) {
	var sends []*walkSend
	var groups []*Group
	used := map[string]bool{}
	w.calls++
	for range 1 + w.rnd.IntN(3) {
		var s *walkSend
		if n := len(w.keyed); n > 0 && w.rnd.IntN(3) == 0 {
			if s = w.keyed[max(0, n-1-w.rnd.IntN(12))]; used[s.key] {
				continue
			}
		} else {
			s = w.send(w.name(), 1+w.rnd.IntN(3), w.rnd.IntN(3) == 0)
		}
		used[s.key] = s.key != ""
		s.tries++
		g := &Group{Namespace: p.ns, Partition: s.partition, IdempotencyKey: s.key}
		for _, uid := range s.uids {
			g.Entries = append(g.Entries, AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(strconv.Itoa(uid))))
		}
		sends, groups = append(sends, s), append(groups, g)
	}
	if len(groups) == 0 {
		return
	}
	w.do(p, func() func() {
		p.store.Produce(context.Background(), groups)
		return func() {
			for i, g := range groups {
				s := sends[i]
				w.note("%s produces %s %v key %q to layout %d: repeated %v, %v", p.name, s.partition, s.uids, s.key, g.at.layout(), g.Repeated, g.Err)
				w.noBreakage("produce", g.Err)
				w.stored(s, g)
			}
		}
	})
}

func (sh *shard) layout() int64 {
	if sh == nil {
		return 0
	}
	return sh.Layout
}

func (w *walker) claim(p *process) {
	numbers, _ := p.ns.OpenShards()
	number := numbers[w.rnd.IntN(len(numbers))]
	byName := w.rnd.IntN(3) == 0
	batches := 1 + w.rnd.IntN(2)
	var names []string
	for _, i := range w.rnd.Perm(len(w.names))[:1+w.rnd.IntN(min(3, len(w.names)))] {
		names = append(names, w.names[i])
	}
	began, lapses, pauses := w.step, w.lapses, w.certainPauses()
	w.do(p, func() func() {
		ctx := context.Background()
		var requests []ClaimRequest
		if byName {
			for _, name := range names {
				requests = append(requests, ClaimRequest{Namespace: p.ns, Partition: name, MaxBatches: batches, Shard: -1})
			}
		} else {
			due, _, _ := p.store.Due(ctx, p.ns, number, 0, 3)
			for _, d := range due {
				requests = append(requests, ClaimRequest{Namespace: p.ns, Partition: d.Partition, MaxBatches: batches, Shard: number})
			}
		}
		results := p.ns.store.Claim(ctx, requests, time.Hour)
		return func() {
			for i := range results {
				w.claimed(p, &results[i], began, lapses, pauses)
			}
		}
	})
}

func (w *walker) claimed(p *process, c *ClaimResult, began, lapses int, pauses map[string]bool) {
	w.noBreakage("claim", c.Err)
	if c.Lease == nil {
		if c.Err != nil {
			w.note("%s claims %s in layout %d: %v", p.name, c.Partition, c.at.layout(), c.Err)
		}
		return
	}
	w.note("%s claims %s in layout %d since step %d: %s", p.name, c.Partition, c.at.layout(), began, entriesText(c.Lease))
	if w.lapses != lapses {
		return // too late to hand it to a sink
	}
	w.leased(p, c.Lease, pauses)
}

func entriesText(l *Lease) string {
	text := fmt.Sprintf("attempt %d, from %d:", l.Attempt, l.From)
	for _, e := range l.Entries {
		text += " " + string(e.Payload)
	}
	return text
}

// settle commits or releases what a lease of the process holds.
func (w *walker) settle(p *process) {
	var l *walkLease
	for _, i := range w.rnd.Perm(len(w.leases)) {
		if o := w.leases[i]; o.owner == p && !o.busy && o.lo < o.To {
			l = w.leases[i]
			break
		}
	}
	if l == nil {
		return
	}
	l.busy = true
	if w.rnd.IntN(5) == 0 {
		r := &Release{Lease: l.Lease, Attempt: l.Attempt}
		if w.rnd.IntN(2) == 0 {
			r.Delay = time.Hour
		}
		w.do(p, func() func() {
			p.store.Release(context.Background(), []*Release{r})
			return func() {
				w.note("%s releases %s for %v: %v", p.name, l.Partition, r.Delay, r.Err)
				w.released(l, r.Err)
			}
		})
		return
	}
	c := &Commit{Lease: l.Lease, Lo: l.lo, Hi: l.To}
	if w.rnd.IntN(3) == 0 {
		c.Hi = l.lo + 1 + w.rnd.Int64N(l.To-l.lo)
	}
	n := int(c.Hi - c.Lo)
	if w.rnd.IntN(6) == 0 {
		c.Dead = 1 + w.rnd.IntN(n)
		for range c.Dead {
			c.DeadLetters = append(c.DeadLetters, []byte("{}"))
		}
	}
	c.Delivered = n - c.Dead
	w.do(p, func() func() {
		p.store.Commit(context.Background(), []*Commit{c})
		return func() {
			w.note("%s commits %s of layout %d [%d, %d) dead %d: already %v, %v", p.name, l.Partition, l.shard().Layout, c.Lo, c.Hi, c.Dead, c.AlreadyApplied, c.Err)
			w.committed(l, c)
		}
	})
}

// pausable is a partition, or sometimes all of them.
func (w *walker) pausable() string {
	if w.rnd.IntN(5) == 0 {
		return ""
	}
	return w.name()
}

func (w *walker) pause(p *process) {
	name := w.pausable()
	change := w.changePause(name)
	w.do(p, func() func() {
		err := p.ns.store.Pause(context.Background(), p.ns, name, Pause{})
		return func() {
			w.note("%s pauses %q: %v", p.name, name, err)
			w.noBreakage("pause", err)
			w.pauseChanged(name, change, true, err)
		}
	})
}

func (w *walker) resume(p *process) {
	name := w.pausable()
	change := w.changePause(name)
	w.do(p, func() func() {
		was, err := p.ns.store.Resume(context.Background(), p.ns, name)
		return func() {
			w.note("%s resumes %q: was %v, %v", p.name, name, was, err)
			w.noBreakage("resume", err)
			w.pauseChanged(name, change, false, err)
		}
	})
}

func (w *walker) purge(p *process) {
	r := PurgeRequest{}
	if w.rnd.IntN(3) > 0 {
		r.Partition = w.name()
	}
	w.do(p, func() func() {
		result, err := p.ns.store.Purge(context.Background(), p.ns, r)
		return func() {
			w.note("%s purges %q: %+v, %v", p.name, r.Partition, result, err)
			w.noBreakage("purge", err)
			w.purged += int(result.Entries)
			w.purgedUnsure = w.purgedUnsure || errors.Is(err, ErrUnknown)
			w.purges = true
		}
	})
}

// A wire is what one process sends to Redis and is answered. It can hold back what is sent, also
// in the middle of an operation: then the process is frozen. And it can lose an answer.
type wire struct {
	addrs []string      // one for each server
	stuck chan struct{} // a request waits

	mu    sync.Mutex
	let   int           // requests that pass before it shuts; negative: all
	freed chan struct{} // closes when it opens again
	lose  int           // answers of scripts to lose yet
}

func newWire(t *testing.T, servers ...*walkServer) *wire {
	w := &wire{stuck: make(chan struct{}, 1), let: -1, freed: make(chan struct{})}
	for _, server := range servers {
		w.addrs = append(w.addrs, redistest.FreeAddr(t))
		redistest.Forward(t, w.addrs[len(w.addrs)-1], server.addr, w.serve)
		t.Cleanup(w.open) // before Forward's, which waits for what is held back
	}
	return w
}

// shut holds back everything after so many further requests.
func (w *wire) shut(after int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	select {
	case <-w.stuck:
	default:
	}
	w.let = after
}

func (w *wire) open() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.let = -1
	close(w.freed)
	w.freed = make(chan struct{})
}

func (w *wire) loseNext() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.lose = 1
}

// admit waits while the wire is shut.
func (w *wire) admit() {
	for {
		w.mu.Lock()
		if w.let != 0 {
			w.let = max(w.let-1, -1)
			w.mu.Unlock()
			return
		}
		freed := w.freed
		select {
		case w.stuck <- struct{}{}:
		default:
		}
		w.mu.Unlock()
		<-freed
	}
}

// loses reports whether the answer to a request is to be lost.
func (w *wire) loses() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.lose == 0 {
		return false
	}
	w.lose--
	return true
}

func (w *wire) serve(client, server net.Conn) {
	var lost sync.Once
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
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		w.admit()
		if bytes.Contains(buf[:n], []byte("evalsha")) && w.loses() {
			lost.Do(func() { close(losing) })
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
