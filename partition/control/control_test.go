package control_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/zap"

	luacontrol "github.com/spillway-io/spillway/lua/control"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

var ctx = context.Background()

func TestWhatOneProcessMakesEveryProcessUses(t *testing.T) {
	t.Parallel()
	for _, url := range []string{"redis", "embedded:"} {
		t.Run(url, func(t *testing.T) {
			t.Parallel()
			prefix := newPrefix()
			if url == "redis" {
				url, prefix = shared(t)
			}
			a := start(t, url, prefix)
			b := a
			if url != "embedded:" {
				b = start(t, url, prefix)
			}
			a.must(a.CreateNamespace(ctx, namespace("mail")))
			made := token("mail", "secret")
			made.Description, made.Produce, made.Limit = "the crm", partition.Rate{Count: 1000, Per: 60e9}, &control.Limit{Read: 5, Interval: 10}
			a.must(a.CreateToken(ctx, made))
			a.must(a.CreateAdmin(ctx, control.Admin{Name: "alice", Role: "viewer", Hash: control.HashToken("alice")}))
			b.await("all there", func(s *control.Snapshot) bool {
				return s.Namespace("mail") != nil && s.Token("mail", made.Hash) != nil && len(s.Admins()) == 2
			})
			s := b.Snapshot()
			n, got := s.Namespace("mail"), s.Token("mail", made.Hash)
			if n.Policy.MaxJobs != 10_000_000 || n.Pool != "default" || n.CreatedMS == 0 || n.CreatedBy != "root" || n.FromFile {
				t.Errorf("got %+v", n)
			}
			if got.Name != control.ShortName(made.Hash) || got.Description != "the crm" || got.Text != "" || got.Produce.String() != "1000/min" || *got.Limit != *made.Limit {
				t.Errorf("got %+v", got)
			}
			if l := got.Limiters; l.Produce == nil || l.Consume != nil || l.Read == nil || l.Write != nil {
				t.Errorf("got limiters %+v", l)
			}
			a.must(a.DeleteNamespace(ctx, "mail", nil))
			b.await("deleted with its token", func(s *control.Snapshot) bool { return s.Namespace("mail") == nil && s.Token("mail", made.Hash) == nil })
			a.must(a.DeleteAdmin(ctx, "alice"))
			if len(a.Snapshot().Ignored) != 0 || len(a.Snapshot().Admins()) != 1 {
				t.Errorf("got %+v", a.Snapshot())
			}
		})
	}
}

// The event that follows a revocation reaches subscribers of another process; open polls hang on it.
func TestARevocationReachesOtherProcesses(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	a, b := start(t, url, prefix), start(t, url, prefix)
	a.must(a.CreateTokenIn(ctx, namespace("mail"), token("", "secret")))
	hash := control.HashToken("secret")
	b.await("there", func(s *control.Snapshot) bool { return s.Token("mail", hash) != nil })
	a.must(a.DeleteToken(ctx, "mail", hash))
	if a.Snapshot().Token("mail", hash) != nil {
		t.Error("the process that revoked it still uses it")
	}
	b.await("revoked", func(s *control.Snapshot) bool { return s.Token("mail", hash) == nil })
}

// Each change is decided on what is there: two writers lose nothing of each other.
func TestTwoProcessesWriteAtOnce(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	a, b := start(t, url, prefix), start(t, url, prefix)
	var writers sync.WaitGroup
	const each = 25
	var mu sync.Mutex
	made := 0
	for _, p := range []*process{a, b} {
		for w := range 2 {
			writers.Go(func() {
				for i := range each {
					// All of them want the namespace, and one makes it.
					err := p.CreateTokenIn(ctx, namespace("mail"), token("", fmt.Sprint(p == a, w, i)))
					for errors.Is(err, control.ErrConflict) {
						err = p.CreateTokenIn(ctx, namespace("mail"), token("", fmt.Sprint(p == a, w, i)))
					}
					if err != nil {
						t.Error(err)
					}
				}
			})
			writers.Go(func() {
				// Of those that make the same token, one succeeds.
				err := p.CreateTokenIn(ctx, namespace("mail"), token("", "same"))
				for errors.Is(err, control.ErrConflict) {
					err = p.CreateTokenIn(ctx, namespace("mail"), token("", "same"))
				}
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					made++
				} else if !errors.Is(err, control.ErrExists) {
					t.Error(err)
				}
			})
		}
	}
	writers.Wait()
	for _, p := range []*process{a, b} {
		p.await("all there", func(s *control.Snapshot) bool { return len(s.Tokens("mail")) == 4*each+1 })
	}
	if made != 1 {
		t.Errorf("%d made the same token, want 1", made)
	}
}

func TestAWriterThatAlwaysComesSecondIsTold(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	a, b := prepare(t, url, prefix), prepare(t, url, prefix)
	a.must(a.CreateTokenIn(ctx, namespace("mail"), token("", "secret")))
	tries := 0
	err := a.ChangeLimit(ctx, "mail", control.HashToken("secret"), func(*control.Limit) (*control.Limit, error) {
		tries++
		b.must(b.CreateToken(ctx, token("mail", fmt.Sprint(tries))))
		return &control.Limit{Read: 1, Interval: 1}, nil
	})
	if !errors.Is(err, control.ErrConflict) || tries != 10 {
		t.Errorf("got %v after %d tries, want a conflict after 10", err, tries)
	}
	if a.Snapshot().Token("mail", control.HashToken("secret")).Limit != nil {
		t.Error("the limit changed all the same")
	}
}

// While Redis is away the last copy serves, nothing can be changed, and what others change comes later.
func TestTheLastCopyServesAnOutage(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	a, b := start(t, server.URL(), "sw"), start(t, server.URL(), "sw")
	a.must(a.CreateTokenIn(ctx, namespace("mail"), token("", "secret")))
	hash := control.HashToken("secret")
	b.await("there", func(s *control.Snapshot) bool { return s.Token("mail", hash) != nil })
	server.Kill()
	if err := b.Refresh(ctx); !errors.Is(err, backend.ErrUnavailable) && !errors.Is(err, backend.ErrUnknown) {
		t.Errorf("refresh: got %v", err)
	}
	if err := b.DeleteToken(ctx, "mail", hash); err == nil || b.Snapshot().Token("mail", hash) == nil {
		t.Errorf("a token was deleted while Redis was away: %v", err)
	}
	if n := b.logs.FilterMessage("control document not read, what was read last stays in use").Len(); n != 1 {
		t.Errorf("the outage has %d lines in the log, want 1", n)
	}
	server.Launch()
	for err := errors.New("not yet"); err != nil; {
		if err = a.DeleteToken(ctx, "mail", hash); errors.Is(err, control.ErrNotFound) { // an earlier try had an unknown outcome
			err = nil
		}
	}
	b.await("revoked", func(s *control.Snapshot) bool { return s.Token("mail", hash) == nil && s.Namespace("mail") != nil })
}

// A failover to a replica that was behind, and a restore, make an earlier document the present one.
func TestAnEarlierDocumentIsTheOneInUse(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	client := redistest.SharedClient(t)
	keys := []string{prefix + ":{control}:doc", prefix + ":{control}:changes"}
	p.must(p.CreateNamespace(ctx, namespace("old")))
	var before []string
	for _, key := range keys {
		before = append(before, client.Dump(ctx, key).Val())
	}
	p.must(p.CreateNamespace(ctx, namespace("new")))
	for i, key := range keys {
		if err := client.RestoreReplace(ctx, key, 0, before[i]).Err(); err != nil {
			t.Fatal(err)
		}
	}
	p.must(p.Refresh(ctx))
	if s := p.Snapshot(); s.Namespace("old") == nil || s.Namespace("new") != nil || s.Version != 1 {
		t.Errorf("got %v, version %d", s.Namespaces(), s.Version)
	}
	client.Del(ctx, keys...)
	p.must(p.Refresh(ctx))
	if s := p.Snapshot(); s.Namespace("old") != nil || s.Namespace("filed") == nil || s.Version != 0 {
		t.Errorf("got %v, version %d", s.Namespaces(), s.Version)
	}
	if n := p.logs.FilterMessageSnippet("Redis went back").Len(); n != 2 {
		t.Errorf("%d lines in the log, want 2", n)
	}
	p.must(p.CreateNamespace(ctx, namespace("old"))) // a new document, whose version the last copy had once
	if s := p.Snapshot(); s.Namespace("old") == nil || s.Version != 1 {
		t.Errorf("got %v, version %d", s.Namespaces(), s.Version)
	}
}

func TestWhatTheFileNamesStays(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	for name, c := range map[string]struct {
		err  error
		want error
	}{
		"a queue of the file":              {p.CreateNamespace(ctx, namespace("filed")), control.ErrInFile},
		"a buffer of the file":             {p.CreateNamespace(ctx, namespace("buffer")), control.ErrInFile},
		"the end of a queue of the file":   {p.DeleteNamespace(ctx, "filed", nil), control.ErrInFile},
		"a token for an open namespace":    {p.CreateToken(ctx, token("open", "x")), control.ErrOpen},
		"a token for a buffer":             {p.CreateToken(ctx, token("buffer", "x")), control.ErrNotFound},
		"a token for nothing":              {p.CreateToken(ctx, token("none", "x")), control.ErrNotFound},
		"a token of the file again":        {p.CreateToken(ctx, token("filed", "filed")), control.ErrExists},
		"the end of a token of the file":   {p.DeleteToken(ctx, "filed", control.HashToken("filed")), control.ErrInFile},
		"the end of no token":              {p.DeleteToken(ctx, "filed", control.HashToken("x")), control.ErrNotFound},
		"an admin of the file again":       {p.CreateAdmin(ctx, control.Admin{Name: "root", Role: "viewer", Hash: control.HashToken("x")}), control.ErrExists},
		"the hash of an admin of the file": {p.CreateAdmin(ctx, control.Admin{Name: "x", Role: "viewer", Hash: control.HashToken("root")}), control.ErrExists},
		"the end of an admin of the file":  {p.DeleteAdmin(ctx, "root"), control.ErrInFile},
		"the end of no admin":              {p.DeleteAdmin(ctx, "x"), control.ErrNotFound},
		"a pool that the file has not":     {p.CreateNamespace(ctx, control.Namespace{Name: "x", Pool: "slow", Policy: namespace("x").Policy}), control.ErrNoPool},
		"the end of no namespace":          {p.DeleteNamespace(ctx, "none", nil), control.ErrNotFound},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
	if v := p.Snapshot().Version; v != 0 {
		t.Errorf("something changed: version %d", v)
	}
	p.must(p.CreateToken(ctx, token("filed", "second"))) // beside those of the file
	if got := p.Snapshot().Tokens("filed"); len(got) != 2 {
		t.Errorf("got %d tokens", len(got))
	}
}

// A reload can name what was made at run time before. That is not used then, and is told.
func TestWhatTheFileNamesLaterTakesPrecedence(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	fast := namespace("mail")
	fast.Pool, fast.Policy.Shards = "fast", 4
	p.must(p.CreateTokenIn(ctx, fast, token("", "secret")))
	p.must(p.CreateTokenIn(ctx, namespace("other"), token("", "secret")))
	p.must(p.CreateAdmin(ctx, control.Admin{Name: "alice", Role: "viewer", Hash: control.HashToken("alice")}))
	later := file()
	later.Namespaces = append(later.Namespaces, control.Namespace{Name: "mail", Pool: "default", Policy: namespace("").Policy})
	later.Tokens = append(later.Tokens, control.Token{Namespace: "mail", Hash: control.HashToken("secret"), Name: "own"})
	later.Buffers = append(later.Buffers, "other")
	later.Admins = append(later.Admins, control.Admin{Name: "alice", Role: "admin", Hash: control.HashToken("x")})
	check := func(s *control.Snapshot) {
		t.Helper()
		if n := s.Namespace("mail"); n.Pool != "default" || n.Policy.Shards != 1 || !n.FromFile {
			t.Errorf("got %+v", n)
		}
		if got := s.Tokens("mail"); len(got) != 1 || got[0].Name != "own" || s.Namespace("other") != nil || len(s.Tokens("other")) != 0 {
			t.Errorf("got tokens %v and %v", got, s.Tokens("other"))
		}
		if len(s.Admins()) != 2 || s.Admins()[1].Role != "admin" {
			t.Errorf("got %v", s.Admins())
		}
		if len(s.Ignored) != 5 || strings.Contains(strings.Join(s.Ignored, ""), "secret") {
			t.Errorf("got %q", s.Ignored)
		}
	}
	check(p.Preview(later))
	if len(p.Snapshot().Ignored) != 0 {
		t.Error("a preview changed what is in use")
	}
	p.Use(later, control.Pools{})
	check(p.Snapshot())
	if got := p.Warnings(); !slices.Equal(got, p.Snapshot().Ignored) {
		t.Errorf("warnings %q", got)
	}
	withoutAdmins := file()
	withoutAdmins.Admins, withoutAdmins.Pools = nil, nil
	p.Use(withoutAdmins, control.Pools{})
	if s := p.Snapshot(); len(s.Admins()) != 0 || s.Namespace("mail") != nil || s.Namespace("other") == nil {
		t.Errorf("an open admin port was closed, or a namespace without a pool is used: %v %v", s.Admins(), s.Namespaces())
	}
}

func TestAnOpenAdminPortIsNotClosedAtRunTime(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p := prepare(t, url, prefix)
	open := file()
	open.Admins = nil
	b := backendtest.Open(t, backend.Config{URL: url})
	p.Use(open, control.Pools{"default": b})
	if err := p.CreateAdmin(ctx, control.Admin{Name: "alice", Role: "viewer", Hash: control.HashToken("x")}); !errors.Is(err, control.ErrOpen) {
		t.Errorf("got %v", err)
	}
}

// A namespace that the store would reject as a whole is not made.
func TestANamespaceNeedsAPoolThatKeepsItsJobs(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t) // without an append-only file
	p := prepare(t, url, prefix)
	b := backendtest.Open(t, backend.Config{URL: url})
	strict := file()
	strict.Volatile = []string{"fast"}
	p.Use(strict, control.Pools{"default": b, "fast": b})
	if err := p.CreateNamespace(ctx, namespace("mail")); !errors.Is(err, backend.ErrIncompatible) || !strings.Contains(err.Error(), "append-only") {
		t.Errorf("got %v", err)
	}
	if err := p.CreateTokenIn(ctx, namespace("mail"), token("", "secret")); !errors.Is(err, backend.ErrIncompatible) {
		t.Errorf("got %v", err)
	}
	fast := namespace("mail")
	fast.Pool = "fast"
	p.must(p.CreateNamespace(ctx, fast))
}

// A reload may come during a look; the race detector judges.
func TestAFileIsTakenIntoUseDuringALook(t *testing.T) {
	t.Parallel()
	c := control.Open(newPrefix(), prometheus.NewRegistry(), zap.NewNop())
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	b := backendtest.Open(t, backend.Config{URL: "redis://" + redistest.Shared(t)})
	c.Use(file(), control.Pools{"default": b})
	var looks sync.WaitGroup
	looks.Go(func() {
		for range 20 {
			_ = c.Refresh(ctx)
		}
	})
	for range 20 {
		c.Use(file(), control.Pools{"default": b})
	}
	looks.Wait()
}

// A process that has not heard of the deletion stores nothing in the namespace: its clients
// would hold an answer 200 for jobs that nobody serves.
func TestADeletedNamespaceTakesNoJobOfAnyProcess(t *testing.T) {
	t.Parallel()
	url, prefix := "redis://"+redistest.Shared(t), newPrefix()
	a := start(t, url, prefix)
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 2, map[string]int{"q": 2}
	create := func() { a.must(a.CreateNamespace(ctx, control.Namespace{Name: "mail", Policy: policy})) }
	create()
	b := backendtest.Open(t, backend.Config{URL: url})
	other, err := job.Open(job.Config{Prefix: prefix, Volatile: true, Namespaces: map[string]job.Policy{"mail": policy}}, b, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	publish := func(when string, want error) {
		t.Helper()
		for shard := range 2 {
			p := &job.Publish{Namespace: other.Namespace("mail"), Queue: "q", Shard: shard, Tries: 1, Messages: []job.Message{{Payload: []byte("x")}}}
			if other.Run(ctx, other.NewLane(), &job.Batch{Publishes: []*job.Publish{p}}); !errors.Is(p.Err, want) {
				t.Errorf("%s: got %v, want %v", when, p.Err, want)
			}
		}
	}
	if _, err := other.Check(ctx); err != nil {
		t.Fatal(err)
	}
	publish("before", nil)
	busy := errors.New("it has jobs")
	if err := a.DeleteNamespace(ctx, "mail", func(context.Context) error {
		publish("while it is counted", job.ErrClosed)
		return busy
	}); !errors.Is(err, busy) || a.Snapshot().Namespace("mail") == nil {
		t.Errorf("got %v", err)
	}
	publish("taken back", nil)
	a.must(a.DeleteNamespace(ctx, "mail", func(context.Context) error { return nil }))
	publish("after", job.ErrClosed)
	create()
	publish("made again", nil)
	a.must(a.DeleteNamespace(ctx, "mail", func(context.Context) error { return nil }))
	publish("deleted again", job.ErrClosed)
	a.Named(map[string]string{"mail": "default"}, control.Pools{"default": b}).Open(ctx)
	publish("named by the file", nil)
}

// A process makes a namespace while another deletes the one of that name, and is not done.
func TestANamespaceThatIsMadeDuringADeletionStaysOpen(t *testing.T) {
	t.Parallel()
	server, prefix := redistest.Shared(t), newPrefix()
	line := redistest.StartFaultLine(t, server)
	a, b := prepare(t, line.URL, prefix), prepare(t, "redis://"+server, prefix)
	a.must(a.CreateNamespace(ctx, namespace("mail")))
	closes := 0
	line.SetFor(luacontrol.Close.SHA, func() (redistest.Fault, float64) {
		if closes++; closes == 2 { // the document is without it
			if err := b.CreateNamespace(ctx, namespace("mail")); err != nil {
				t.Error(err)
			}
		}
		return redistest.Passes, 0
	})
	a.must(a.DeleteNamespace(ctx, "mail", func(context.Context) error { return nil }))
	c := redis.NewClient(&redis.Options{Addr: server})
	t.Cleanup(func() { _ = c.Close() })
	closed, err := c.HExists(ctx, backend.ShardPrefix(prefix, "mail", 0, 1)+"ledger", "closed").Result()
	if closed || err != nil || closes != 2 {
		t.Errorf("closed %v, %v, after %d calls", closed, err, closes)
	}
}

// What has a life of its own beside the jobs must not answer, or be shown to, the next tenant of the name.
func TestADeletedNamespaceLeavesNothingToTheNextOfItsName(t *testing.T) {
	t.Parallel()
	for name, url := range map[string]string{"one server": "redis://" + redistest.Shared(t), "a cluster": redistest.SharedMasters(t).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			prefix := newPrefix()
			a := prepare(t, url, prefix)
			of := namespace("mail")
			of.Policy.Shards = 4
			a.must(a.CreateNamespace(ctx, of))
			c := a.pools["default"].Out
			var own []string
			for i := range 4 {
				own = append(own, backend.ShardPrefix(prefix, "mail", i, 4))
			}
			others := []string{backend.ShardPrefix(prefix, "mail.0", 0, 1) + "dd:q:1", backend.ShardPrefix(prefix, "mailing", 0, 1) + "ledger", prefix + ":{control}:doc"}
			for _, shard := range own {
				a.must(errors.Join(
					c.HSet(ctx, shard+"ledger", "published", 7, "epoch", "x", "shards", 4).Err(), c.Set(ctx, shard+"dd:q:1", "1 1", 0).Err(),
					c.HSet(ctx, shard+"traces", "1 q", "lines").Err(), c.HSet(ctx, shard+"paused", "q", "1 bob").Err()))
			}
			a.must(errors.Join(c.Set(ctx, others[0], "1 1", 0).Err(), c.HSet(ctx, others[1], "published", 1).Err()))
			a.must(a.DeleteNamespace(ctx, "mail", func(context.Context) error { return nil }))
			for _, shard := range own {
				if fields := slices.Sorted(slices.Values(c.HKeys(ctx, shard+"ledger").Val())); !slices.Equal(fields, []string{"closed", "shards"}) {
					t.Errorf("the ledger of %s has %q", shard, fields)
				}
				if n := c.Exists(ctx, shard+"dd:q:1").Val() + c.Exists(ctx, shard+"traces").Val() + c.Exists(ctx, shard+"paused").Val(); n > 0 {
					t.Errorf("%s has %d keys more", shard, n)
				}
			}
			for _, key := range others {
				if c.Exists(ctx, key).Val() == 0 {
					t.Errorf("%s is gone as well", key)
				}
			}
			of.Policy.Shards = 1
			a.must(a.CreateNamespace(ctx, of))
			if fields := c.HGetAll(ctx, own[0]+"ledger").Val(); !maps.Equal(fields, map[string]string{"shards": "1"}) {
				t.Errorf("the ledger of the next one has %q", fields)
			}
		})
	}
}

// A look has 2 s for all namespaces, however far away Redis is.
func TestManyNamespacesOfAFileAreOpenedInFewRoundTrips(t *testing.T) {
	t.Parallel()
	url, prefix := "redis://"+redistest.Shared(t), newPrefix()
	a := start(t, url, prefix)
	b := backendtest.Open(t, backend.Config{URL: url})
	made := &trips{}
	b.Background.AddHook(made)
	named := map[string]string{}
	for i := range 300 {
		named[fmt.Sprintf("kart%d", i)] = "default"
	}
	a.Named(named, control.Pools{"default": b}).Open(ctx)
	if made.Load() > 4 {
		t.Errorf("%d round trips", made.Load())
	}
}

// trips counts round trips.
type trips struct{ atomic.Int64 }

func (n *trips) DialHook(next redis.DialHook) redis.DialHook { return next }

func (n *trips) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmd)
	}
}

func (n *trips) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		n.Add(1)
		return next(ctx, cmds)
	}
}

func TestTheHistoryOfANamespaceEndsWithIt(t *testing.T) {
	t.Parallel()
	url, prefix := shared(t)
	p, client := prepare(t, url, prefix), redistest.SharedClient(t)
	p.must(p.CreateNamespace(ctx, namespace("mail")))
	p.must(p.CreateNamespace(ctx, namespace("mail.eu")))
	own, other := prefix+":{mail.0}:history", prefix+":{mail.eu.0}:history"
	for _, key := range []string{own, other} {
		client.RPush(ctx, key, "29932559 3 0")
	}
	p.must(p.DeleteNamespace(ctx, "mail", func(context.Context) error { return nil }))
	if client.Exists(ctx, own).Val() != 0 || client.Exists(ctx, other).Val() != 1 {
		t.Error("it is there, or another namespace's is not")
	}
}
