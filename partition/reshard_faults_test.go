package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua"
	lualayout "github.com/spillway-io/spillway/lua/layout"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/space"
)

// What walks and a reading of them found, each as its own test.

// others opens processes on one namespace of so many shards.
func others(t *testing.T, url string, n, shards int) (all []*process) {
	t.Helper()
	policy := DefaultPolicy()
	policy.Shards, policy.Linger, policy.Batch = shards, 0, 4
	for i := range n {
		registry := prometheus.NewRegistry()
		s, err := Open(Config{URL: url, Prefix: "sw", Namespaces: map[string]Policy{walkNamespace: policy}}, registry, zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		if err := s.Ping(context.Background()); err != nil {
			t.Fatal(err)
		}
		all = append(all, &process{name: fmt.Sprint("#", i), store: s, ns: s.Namespace(walkNamespace), registry: registry})
	}
	return all
}

func (p *process) put(t *testing.T, partition, text string) {
	t.Helper()
	g := &Group{Namespace: p.ns, Partition: partition, Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(text))}}
	if p.store.Produce(context.Background(), []*Group{g}); g.Err != nil {
		t.Fatalf("%s: %v", partition, g.Err)
	}
}

func (p *process) reshard(t *testing.T, shards int) {
	t.Helper()
	if _, err := p.ns.store.Reshard(context.Background(), p.ns, ReshardRequest{Shards: shards}); err != nil {
		t.Fatal(err)
	}
}

func (p *process) tidy() {
	now, _ := p.store.Now()
	p.store.tidyLayouts(context.Background(), p.ns, now)
}

func (p *process) read() {
	p.store.space.ReadRecords(context.Background(), []*space.Home{p.ns.home})
}

// namesIn are one partition of each shard of the newest layout.
func (p *process) namesIn() []string {
	current := p.ns.home.Layouts().Current()
	names := make([]string, len(current.Shards))
	for i, found := 0, 0; found < len(names); i++ {
		name := fmt.Sprint("p", i)
		for k, sh := range current.Shards {
			if current.Of(name) == sh && names[k] == "" {
				names[k] = name
				found++
			}
		}
	}
	return names
}

// A shard is closed while another of its layout has entries still, with a sink that is down for hours.
func TestAResumedPartitionDoesNotWaitForAClosedShard(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	two := others(t, redistest.Start(t).URL(), 2, 2)
	p, q := two[0], two[1]
	names := p.namesIn()
	for _, pause := range []string{names[0], ""} {
		if err := p.ns.store.Pause(ctx, p.ns, pause, Pause{}); err != nil {
			t.Fatal(err)
		}
	}
	p.put(t, names[1], "in the older layout")
	p.reshard(t, 3)
	p.put(t, names[0], "in the newer layout")
	p.tidy()
	q.read()
	claim := func() (leased bool) {
		for _, c := range q.ns.store.Claim(ctx, []ClaimRequest{{Namespace: q.ns, Partition: names[0], MaxBatches: 1, Shard: -1}}, time.Minute) {
			if c.Err != nil {
				t.Fatal(c.Err)
			}
			leased = c.Lease != nil
		}
		return leased
	}
	if claim() {
		t.Error("leased while it is paused")
	}
	for _, pause := range []string{"", names[0]} {
		if was, err := q.ns.store.Resume(ctx, q.ns, pause); !was || err != nil {
			t.Fatalf("resume of %q: was paused %v, %v", pause, was, err)
		}
	}
	redistest.Until(t, 20*time.Second, "the partition is leased", claim)
}

// A process produces, another drains, and a third changes the shards.
func TestShardsChangeOnAClusterUnderLoad(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartMasters(t, 3)
	three := others(t, cluster.URL(), 3, 2)
	const partitions, least = 20, 30
	sent := map[string]int{}
	var producing, draining sync.WaitGroup
	resharded, produced := make(chan struct{}), make(chan struct{})
	producing.Go(func() {
		p := three[0]
		for done := false; !done || sent["p0"] < least; {
			select {
			case <-resharded:
				done = true
			default:
			}
			var groups []*Group
			for i := range partitions {
				name := fmt.Sprint("p", i)
				sent[name]++
				entry := AppendEntry(nil, time.Now().UnixMilli(), nil, []byte(strconv.Itoa(sent[name])))
				groups = append(groups, &Group{Namespace: p.ns, Partition: name, Entries: [][]byte{entry}})
			}
			p.store.Produce(ctx, groups)
			for _, g := range groups {
				if g.Err != nil {
					t.Errorf("%s: %v", g.Partition, g.Err)
				}
			}
		}
	})
	got := map[string]int{}
	draining.Go(func() {
		p := three[1]
		for ended := false; !t.Failed(); {
			select {
			case <-produced:
				ended = true
			default:
			}
			p.read()
			p.tidy()
			numbers, _ := p.ns.OpenShards()
			for _, number := range numbers {
				due, _, err := p.store.Due(ctx, p.ns, number, 0, partitions)
				if err != nil {
					t.Errorf("due: %v", err)
				}
				var requests []ClaimRequest
				for _, d := range due {
					requests = append(requests, ClaimRequest{Namespace: p.ns, Partition: d.Partition, MaxBatches: 8, Shard: number})
				}
				var commits []*Commit
				for _, c := range p.ns.store.Claim(ctx, requests, time.Minute) {
					if c.Err != nil {
						t.Errorf("claim of %s: %v", c.Partition, c.Err)
					}
					if c.Lease == nil {
						continue
					}
					for _, e := range c.Lease.Entries {
						if got[c.Partition]++; string(e.Payload) != strconv.Itoa(got[c.Partition]) {
							t.Errorf("%s: got %s, want %d", c.Partition, e.Payload, got[c.Partition])
						}
					}
					commits = append(commits, &Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)})
				}
				p.store.Commit(ctx, commits)
				for _, c := range commits {
					if c.Err != nil {
						t.Errorf("commit of %s: %v", c.Lease.Partition, c.Err)
					}
				}
			}
			if o, err := p.store.Overview(ctx, p.ns); ended && err == nil && o.Ledger.Buffered == 0 {
				return
			}
		}
	})
	p := three[2]
	for _, shards := range []int{6, 12} {
		redistest.Until(t, time.Minute, "the shards change", func() bool {
			_, err := p.ns.store.Reshard(ctx, p.ns, ReshardRequest{Shards: shards})
			return err == nil
		})
		on := make([]int, 3)
		for _, sh := range p.ns.home.Layouts().Current().Shards {
			on[cluster.MasterOf(sh.Ledger)]++
		}
		if want := shards / 3; on[0] != want || on[1] != want || on[2] != want {
			t.Errorf("%d shards lie %v on the masters", shards, on)
		}
	}
	close(resharded)
	producing.Wait()
	close(produced)
	draining.Wait()
	redistest.Until(t, time.Minute, "the older layouts are closed", func() bool {
		p.read()
		p.tidy()
		return len(p.ns.home.Layouts().Open()) == 1
	})
	for name, n := range sent {
		if got[name] != n {
			t.Errorf("%s: %d came of %d", name, got[name], n)
		}
	}
	if residual, err := p.store.Audit(ctx, p.ns); residual != 0 || err != nil {
		t.Errorf("residual %d, %v", residual, err)
	}
}

// With an empty namespace each layout is closed at once, so that fifty of them take a moment.
func TestFiftyLayoutsLeaveLedgersOnly(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 1)[0]
	last := int64(0)
	for i := range 50 {
		p.put(t, "p", strconv.Itoa(i))
		p.reshard(t, 2+i%2)
		p.put(t, "p", strconv.Itoa(i))
		redistest.Until(t, 20*time.Second, "the older layout is drained and closed", func() bool {
			numbers, _ := p.ns.OpenShards()
			for _, number := range numbers {
				request := ClaimRequest{Namespace: p.ns, Partition: "p", MaxBatches: 1, Shard: number}
				for _, c := range p.ns.store.Claim(ctx, []ClaimRequest{request}, time.Minute) {
					if c.Err != nil {
						t.Fatal(c.Err)
					}
					if c.Lease == nil {
						continue
					}
					if c.Lease.From <= last || c.Lease.To >= 1<<53 {
						t.Fatalf("sequence %d after %d", c.Lease.From, last)
					}
					last = c.Lease.From
					commit := &Commit{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}
					if p.store.Commit(ctx, []*Commit{commit}); commit.Err != nil {
						t.Fatal(commit.Err)
					}
				}
			}
			p.tidy()
			return len(p.ns.home.Layouts().Open()) == 1
		})
	}
	redistest.Until(t, 20*time.Second, "all of the newest layout is delivered", func() bool {
		request := ClaimRequest{Namespace: p.ns, Partition: "p", MaxBatches: 1, Shard: -1}
		for _, c := range p.ns.store.Claim(ctx, []ClaimRequest{request}, time.Minute) {
			if c.Lease != nil {
				p.store.Commit(ctx, []*Commit{{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}})
			}
		}
		o, err := p.store.Overview(ctx, p.ns)
		return err == nil && o.Ledger.Buffered == 0
	})
	o, err := p.store.Overview(ctx, p.ns)
	if err != nil || o.Ledger.Accepted != 100 || o.Ledger.Delivered != 100 {
		t.Errorf("got %+v, %v", o.Ledger, err)
	}
	shards := len(p.ns.home.Shards())
	if n := server.Client().DBSize(ctx).Val(); n > int64(shards)+1 {
		t.Errorf("%d keys are left, of %d shards and a record: %v", n, shards, server.Client().Keys(ctx, "*").Val())
	}
}

// A caller who gives up while shards are fenced refuses nobody else.
func TestACallerThatEndsWhileItFencesRefusesNobody(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	two := others(t, redistest.Start(t).URL(), 2, 2)
	p, q := two[0], two[1]
	p.put(t, "a", "1")
	q.put(t, "a", "2")
	if _, err := p.ns.store.Reshard(ctx, p.ns, ReshardRequest{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	q.read()
	ended, cancel := context.WithCancel(ctx)
	cancel()
	if err := q.ns.store.Pause(ended, q.ns, "zzz", Pause{}); err == nil {
		t.Error("a pause whose caller ended did not say so")
	}
	q.put(t, "a", "3")
}

// The pauses of a closed shard were copied, and never change again: they are not listed any more.
func TestAResumedNamespaceIsNotListedAsPaused(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	p := others(t, redistest.Start(t).URL(), 2, 2)[0]
	if err := p.ns.store.Pause(ctx, p.ns, "", Pause{}); err != nil {
		t.Fatal(err)
	}
	p.put(t, p.namesIn()[1], "in the older layout")
	p.reshard(t, 3)
	p.tidy() // closes the shard that is empty
	if was, err := p.ns.store.Resume(ctx, p.ns, ""); err != nil || !was {
		t.Fatal(was, err)
	}
	list, err := p.ns.store.Pauses(ctx, p.ns)
	o, err2 := p.store.Overview(ctx, p.ns)
	if err != nil || err2 != nil || len(list) > 0 || o.Paused != nil {
		t.Errorf("after the resume: %+v %v, %+v %v", list, err, o.Paused, err2)
	}
}

// A repeat under a key waits for replicas as the first call did, also where a former home knows it.
func TestARepeatThatAFormerHomeKnowsIsNotAcknowledgedBeforeReplicasHaveIt(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	policy := DefaultPolicy()
	policy.Shards = 2
	s, err := Open(Config{URL: redistest.Start(t).URL(), Prefix: "sw", Replicas: 1, Namespaces: map[string]Policy{walkNamespace: policy}},
		prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	ns := s.Namespace(walkNamespace)
	put := func() *Group {
		g := &Group{Namespace: ns, Partition: "a", IdempotencyKey: "k", Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("x"))}}
		s.Produce(ctx, []*Group{g})
		return g
	}
	put()
	if _, err := s.Reshard(ctx, ns, ReshardRequest{Shards: 3}); err != nil {
		t.Fatal(err)
	}
	if g := put(); !g.Repeated || !errors.Is(g.Err, ErrUnconfirmed) {
		t.Errorf("repeated %v, %v; want it unconfirmed", g.Repeated, g.Err)
	}
}

// A knife is the wire of a process that is killed before one of its scripts: what it sent before is done,
// and nothing comes after.
type knife struct {
	url string

	mu   sync.Mutex
	left int            // scripts until then
	seen map[string]int // by name
	cut  string         // the script that was not sent any more, as "fence 2"; empty: it lives
}

var evalsha = regexp.MustCompile(`\*\d+\r\n\$7\r\nevalsha\r\n\$40\r\n([0-9a-f]{40})`)

func newKnife(t *testing.T, target string) *knife {
	t.Helper()
	addr := redistest.FreeAddr(t)
	k := &knife{url: "redis://" + addr, left: math.MaxInt, seen: map[string]int{}}
	redistest.Forward(t, addr, target, k.serve)
	return k
}

// arm kills the process after so many further scripts. It returns where it died before.
func (k *knife) arm(scripts int) (cut string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	cut, k.left = k.cut, scripts
	clear(k.seen)
	return cut
}

// pass is how much of what the process sends still leaves it.
func (k *knife) pass(buf []byte) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, at := range evalsha.FindAllSubmatchIndex(buf, -1) {
		name := scriptNames[string(buf[at[2]:at[3]])]
		k.seen[name]++
		if k.left--; k.left < 0 && k.cut == "" {
			k.cut = fmt.Sprint(name, " ", k.seen[name])
			return at[0]
		}
	}
	if k.cut != "" {
		return 0
	}
	return len(buf)
}

var scriptNames = func() map[string]string {
	names := map[string]string{}
	for _, s := range slices.Concat(lua.All(), lualayout.All()) {
		names[s.SHA] = s.Name
	}
	return names
}()

func (k *knife) serve(client, server net.Conn) {
	var answers sync.WaitGroup
	answers.Go(func() {
		_, _ = io.Copy(client, server)
		_ = client.Close()
	})
	buf := make([]byte, 1<<20)
	for {
		n, err := client.Read(buf)
		if err != nil {
			break
		}
		whole := n
		if n = k.pass(buf[:n]); n > 0 {
			_, err = server.Write(buf[:n])
		}
		if n < whole || err != nil {
			_ = client.Close() // nobody hears the answers
			break
		}
	}
	_ = server.(*net.TCPConn).CloseWrite() // what arrived is done
	answers.Wait()
}

// A life is what a process does around a reshard, and what came of it.
type life struct {
	*process
	names []string
	told  map[string]error    // what came of its entry
	shown map[string][]string // what it was given
}

func (v *life) live() {
	ctx := context.Background()
	_, _ = v.ns.store.Reshard(ctx, v.ns, ReshardRequest{Shards: 3})
	for _, name := range v.names {
		g := &Group{Namespace: v.ns, Partition: name, Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("victim"))}}
		v.store.Produce(ctx, []*Group{g})
		v.told[name] = g.Err
	}
	for range 2 {
		v.drain()
		v.tidy()
	}
}

// drain asks the newest layout first, whose partitions have to wait.
func (v *life) drain() {
	ctx := context.Background()
	numbers, _ := v.ns.OpenShards()
	for _, number := range slices.Backward(numbers) {
		due, _, _ := v.store.Due(ctx, v.ns, number, 0, 100)
		for _, d := range due {
			request := ClaimRequest{Namespace: v.ns, Partition: d.Partition, MaxBatches: 1, Shard: number}
			for _, c := range v.ns.store.Claim(ctx, []ClaimRequest{request}, 200*time.Millisecond) {
				if c.Lease == nil {
					continue
				}
				for _, e := range c.Lease.Entries {
					v.shown[d.Partition] = append(v.shown[d.Partition], string(e.Payload))
				}
				v.store.Commit(ctx, []*Commit{{Lease: c.Lease, Lo: c.Lease.From, Hi: c.Lease.To, Delivered: len(c.Lease.Entries)}})
			}
		}
	}
}

// A process is killed at every script between its reshard and the end of the older layout. Another, which
// knows of no reshard, goes on.
func TestAProcessIsKilledAtEveryStepOfAReshard(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	cuts := map[string]bool{}
	for n, cut := 0, "begin"; cut != "" && !t.Failed(); n++ {
		t.Run(fmt.Sprint("after ", n, " scripts"), func(t *testing.T) { cut = killAfter(t, server, n); cuts[cut] = true })
	}
	for _, step := range []string{
		"record 1", "fence 1", "fence 2", "fence 3", "fence 4", "fence 5", // two older shards, three new ones
		"produce 1", "produce 2", "gone 1", "put_off 1", "claim 1", "commit 1", "close 1", "adopt_pauses 1", "close 2", "record 2",
	} {
		if !cuts[step] {
			t.Errorf("no process was killed before %s", step)
		}
	}
	t.Logf("killed before %v", slices.Sorted(maps.Keys(cuts)))
}

func killAfter(t *testing.T, server *redistest.Server, n int) (cut string) {
	ctx := context.Background()
	if err := server.Client().FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	other := others(t, server.URL(), 1, 2)[0]
	names := other.namesIn()
	for _, name := range names {
		other.put(t, name, "1")
		other.put(t, name, "2")
	}
	if err := other.ns.store.Pause(ctx, other.ns, "paused", Pause{}); err != nil {
		t.Fatal(err)
	}
	knife := newKnife(t, server.Addr)
	v := &life{others(t, knife.url, 1, 2)[0], names, map[string]error{}, map[string][]string{}}
	knife.arm(n)
	v.live()
	cut = knife.arm(math.MaxInt)

	s := &life{process: other, shown: v.shown}
	other.read()
	if len(other.ns.home.Layouts().All) == 1 { // it died before the record was written
		other.reshard(t, 3)
	}
	for _, name := range append(names, "paused") {
		other.put(t, name, "after")
	}
	redistest.Until(t, 30*time.Second, "all is delivered, and the older layout is closed", func() bool {
		other.read()
		s.drain()
		other.tidy()
		o, err := other.store.Overview(ctx, other.ns)
		return err == nil && o.Ledger.Buffered == 1 && len(other.ns.home.Layouts().Open()) == 1
	})
	if was, err := other.ns.store.Resume(ctx, other.ns, "paused"); !was || err != nil {
		t.Errorf("the pause did not come along: %v, %v", was, err)
	}
	accepted := int64(1)
	for _, name := range names {
		var first []string
		for _, text := range s.shown[name] {
			if !slices.Contains(first, text) {
				first = append(first, text)
			}
		}
		want, stored := "[1 2 victim after]", slices.Contains(first, "victim")
		if !stored {
			want = "[1 2 after]"
		}
		if err := v.told[name]; fmt.Sprint(first) != want || !stored && err == nil || stored && err != nil && !errors.Is(err, ErrUnknown) {
			t.Errorf("killed before %s: %s came as %v, and the producer was told %v", cut, name, first, err)
		}
		accepted += int64(len(first))
	}
	o, err := other.store.Overview(ctx, other.ns)
	residual, wrong := other.store.Audit(ctx, other.ns)
	if err != nil || wrong != nil || residual != 0 || o.Ledger.Accepted != accepted {
		t.Errorf("killed before %s: residual %d, %+v, want %d accepted; %v, %v", cut, residual, o.Ledger, accepted, err, wrong)
	}
	return cut
}

// Of two operators who want different shards one wins, and the other is told.
func TestOfTwoReshardsAtOnceOneWins(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	for range 10 {
		server.Client().FlushAll(ctx)
		two := others(t, server.URL(), 2, 2)
		two[0].put(t, "p", "in the older layout")
		var errs [2]error
		var asking sync.WaitGroup
		for i, p := range two {
			asking.Go(func() { _, errs[i] = p.ns.store.Reshard(ctx, p.ns, ReshardRequest{Shards: 3 + 2*i}) })
		}
		asking.Wait()
		winner := slices.Index(errs[:], nil)
		if winner < 0 || !errors.Is(errs[1-winner], ErrResharding) {
			t.Fatalf("got %v, want that one wins and the other is told", errs)
		}
		for _, p := range two {
			p.read()
			if n := p.ns.Shards(); n != 3+2*winner || len(p.ns.home.Layouts().All) != 2 {
				t.Errorf("%d shards, and operator %d won: %s", n, winner, p.known())
			}
		}
	}
}

func TestAReshardToWhatIsThereWritesNothing(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	record := func() map[string]string { return server.Client().HGetAll(ctx, "sw:{"+walkNamespace+"}:layout").Val() }
	p.reshard(t, 2)
	if r := record(); len(r) > 0 {
		t.Errorf("there is a record: %v", r)
	}
	p.put(t, "p", "in the older layout")
	p.reshard(t, 3)
	before := record()
	p.reshard(t, 3) // while an older one is open, too
	if r := record(); len(before) == 0 || !maps.Equal(r, before) {
		t.Errorf("the record was %v and is %v", before, r)
	}
}

// One of three masters is away when a process learns of other shards.
func TestShardsChangeWhileAMasterIsAway(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartMasters(t, 3)
	three := others(t, cluster.URL(), 3, 12)
	p, q, late := three[0], three[1], three[2]
	away := (cluster.MasterOf("sw:{"+walkNamespace+"}:layout") + 1) % 3 // not that of the record
	names := p.namesIn()
	lost := map[string]bool{}  // partitions of which a home is away
	late.put(t, names[0], "0") // a process that never found all masters takes nothing
	for i, sh := range p.ns.home.Layouts().Current().Shards {
		lost[names[i]] = cluster.MasterOf(sh.Ledger) == away
		p.put(t, names[i], "1")
	}
	master := cluster.Masters[away]
	master.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { master.Signal(syscall.SIGCONT) })
	if _, err := q.ns.store.Reshard(ctx, q.ns, ReshardRequest{Shards: 6}); err == nil {
		t.Error("a reshard begins while a master is away")
	}
	if n := cluster.Masters[(away+2)%3].Client().Exists(ctx, "sw:{"+walkNamespace+"}:layout").Val(); n > 0 {
		t.Error("a reshard that was rejected left a record")
	}
	master.Signal(syscall.SIGCONT)
	redistest.Until(t, 30*time.Second, "the shards change", func() bool {
		_, err := p.ns.store.Reshard(ctx, p.ns, ReshardRequest{Shards: 6})
		return err == nil
	})
	for _, name := range names {
		lost[name] = lost[name] || cluster.MasterOf(p.ns.home.Layouts().Current().Of(name).Ledger) == away
	}
	master.Signal(syscall.SIGSTOP)
	redistest.Until(t, 30*time.Second, "the others take entries", func() bool {
		late.read()
		var groups []*Group
		for _, name := range names {
			entry := AppendEntry(nil, time.Now().UnixMilli(), nil, []byte("2"))
			groups = append(groups, &Group{Namespace: late.ns, Partition: name, Entries: [][]byte{entry}})
		}
		late.store.Produce(ctx, groups)
		ok := true
		for _, g := range groups {
			if lost[g.Partition] && g.Err == nil {
				t.Errorf("%s: taken, and a home of it is away", g.Partition)
			}
			ok = ok && (lost[g.Partition] || g.Err == nil)
		}
		return ok
	})
	master.Signal(syscall.SIGCONT)
	l := &life{process: q, shown: map[string][]string{}}
	redistest.Until(t, time.Minute, "all is delivered, and the older layout is closed", func() bool {
		q.read()
		l.drain()
		q.tidy()
		o, err := q.store.Overview(ctx, q.ns)
		return err == nil && o.Ledger.Buffered == 0 && len(q.ns.home.Layouts().Open()) == 1
	})
	redistest.Until(t, 30*time.Second, "the process that came late tries the master again", func() bool {
		return late.store.fence(ctx, late.ns) == nil // for 100 ms it has the error of before
	})
	for _, name := range names {
		late.put(t, name, "3")
		if got := l.shown[name]; !slices.IsSorted(got) || !slices.Contains(got, "1") || !lost[name] && !slices.Contains(got, "2") {
			t.Errorf("%s: came as %v", name, got)
		}
	}
	if residual, err := q.store.Audit(ctx, q.ns); residual != 0 || err != nil {
		t.Errorf("residual %d, %v", residual, err)
	}
}

// Operators ask a process that has just begun, and has not stored or claimed anything yet.
func TestAProcessReadsTheLayoutsOfTheStoreBeforeItsFirstEntry(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	p.reshard(t, 3)
	p.tidy() // closes what is empty
	if err := p.ns.store.Pause(ctx, p.ns, "p", Pause{}); err != nil {
		t.Fatal(err)
	}
	names := p.namesIn()
	for _, name := range names {
		p.put(t, name, "1")
	}
	for what, count := range map[string]func(q *process) (int, error){
		"pauses": func(q *process) (int, error) { list, err := q.ns.store.Pauses(ctx, q.ns); return 2 + len(list), err },
		"peek": func(q *process) (n int, err error) {
			for _, name := range names {
				all, wrong := q.ns.store.Peek(ctx, q.ns, name, PeekRequest{Limit: 1})
				n, err = n+len(all.Entries), errors.Join(err, wrong)
			}
			return n, err
		},
		"describe": func(q *process) (int, error) {
			list, err := q.ns.store.Describe(ctx, q.ns, names)
			return len(list), err
		},
		"audit": func(q *process) (int, error) { n, err := q.ns.store.Audit(ctx, q.ns); return 3 + int(n), err },
	} {
		if n, err := count(others(t, server.URL(), 1, 2)[0]); n != 3 || err != nil {
			t.Errorf("%s: got %d, %v, want 3", what, n, err)
		}
	}
}

// Two processes that are configured differently are the first users of a namespace.
func TestOfTwoFirstUsersOneFollowsTheOther(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	cluster := redistest.StartMasters(t, 3)
	for i := range 20 {
		two := []*process{others(t, cluster.URL(), 1, 2)[0], others(t, cluster.URL(), 1, 5)[0]}
		for _, p := range two { // both read before one of them wrote
			if err := p.store.space.Resolve(ctx, p.ns.home); err != nil {
				t.Fatal(err)
			}
		}
		var storing sync.WaitGroup
		for _, p := range two {
			storing.Go(func() { p.put(t, "p", "1") })
			if i%2 == 0 {
				storing.Wait()
			}
		}
		storing.Wait()
		if a, b := two[0].ns.Shards(), two[1].ns.Shards(); a != b {
			t.Errorf("one has %d shards, the other %d", a, b)
		}
		for _, master := range cluster.Masters {
			master.Client().FlushAll(ctx)
		}
	}
}

// The record is lost with all processes that knew it, and the layout that its first users had is closed.
func TestARecordThatNoProcessKnowsIsFoundInClosedLedgers(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	server := redistest.Start(t)
	p := others(t, server.URL(), 1, 2)[0]
	for shards := range 3 {
		p.put(t, "p", "before")
		p.reshard(t, 3+shards)
		p.drain(t)
		redistest.Until(t, 20*time.Second, "the older layout is closed", func() bool {
			p.tidy()
			return len(p.ns.home.Layouts().Open()) == 1
		})
	}
	record := "sw:{" + walkNamespace + "}:layout"
	server.Client().Del(ctx, record)
	q := others(t, server.URL(), 1, 2)[0]
	q.put(t, "p", "after")
	q.read()
	if server.Client().Exists(ctx, record).Val() == 0 {
		t.Error("the record is not written again")
	}
	if got := q.drain(t); got != 1 {
		t.Errorf("%d entries are delivered, want 1", got)
	}
	redistest.Until(t, 20*time.Second, "the new process knows the same", func() bool {
		q.tidy()
		return q.known() == p.known()
	})

	for _, key := range server.Client().Keys(ctx, "*ledger").Val() {
		server.Client().HDel(ctx, key, "record", "version")
	}
	server.Client().Del(ctx, record)
	last := others(t, server.URL(), 1, 2)[0]
	g := &Group{Namespace: last.ns, Partition: "p", Entries: [][]byte{AppendEntry(nil, time.Now().UnixMilli(), nil, nil)}}
	if last.store.Produce(ctx, []*Group{g}); !errors.Is(g.Err, ErrUnavailable) || !strings.Contains(g.Err.Error(), record) {
		t.Errorf("got %v, want that the record is named", g.Err)
	}
	if _, err := last.ns.store.Reshard(ctx, last.ns, ReshardRequest{Shards: 2, Again: true}); err != nil {
		t.Fatal(err)
	}
	last.put(t, "p", "after a further reshard")
}

// Behind a sink that is down partitions wait for a retry, some for longer than their entries may live.
func TestTheJanitorLooksAtAllOfAnOlderLayoutOnceItIsStale(t *testing.T) {
	t.Parallel()
	p := others(t, redistest.Start(t).URL(), 1, 2)[0]
	p.put(t, "p", "1")
	older := home{p.ns, p.ns.shardOf("p")}
	p.reshard(t, 3)
	newest := home{p.ns, p.ns.shardOf("p")}
	replaced, maxAge := p.ns.home.Layouts().Current().Made, p.ns.Policy.MaxAge
	for _, c := range []struct {
		of         home
		after      time.Duration
		everything bool
	}{{older, maxAge, false}, {older, maxAge + time.Millisecond, true}, {newest, time.Hour, false}} {
		now := replaced + c.after.Milliseconds()
		want := now - 1000
		if c.everything {
			want = math.MaxInt64
		}
		if got := c.of.overdue(now, time.Second); got != want {
			t.Errorf("layout %d, %v after it was replaced: got %d, want %d", c.of.sh.Layout, c.after, got, want)
		}
	}
}
