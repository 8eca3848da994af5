package backend

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/lua"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/share"
)

func TestURLsThatAreUsable(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]struct {
		addrs          []string
		user, password string
		db             int
	}{
		"redis://h:1":                                  {addrs: []string{"h:1"}},
		"redis://h":                                    {addrs: []string{"h:6379"}},
		"redis://u:p%40ss@h:1/3":                       {addrs: []string{"h:1"}, user: "u", password: "p@ss", db: 3},
		"rediss://:secret@h:1":                         {addrs: []string{"h:1"}, password: "secret"},
		"unix://u:p@/run/redis.sock?db=2":              {addrs: []string{"/run/redis.sock"}, user: "u", password: "p", db: 2},
		"redis://h:1?db=4":                             {addrs: []string{"h:1"}, db: 4},
		"rediss://:secret@h:1/3?skip_verify=true":      {addrs: []string{"h:1"}, password: "secret", db: 3},
		"redis://u:p%3Fdb=7@h:1":                       {addrs: []string{"h:1"}, user: "u", password: "p?db=7"},
		"redis-sentinel://u:p?x@h1:1/master":           {addrs: []string{"h1:1"}, user: "u", password: "p?x"},
		"redis-cluster://h1:1,h2,h3:3":                 {addrs: []string{"h1:1", "h2:6379", "h3:3"}},
		"redis-cluster://u:p@h1:1":                     {addrs: []string{"h1:1"}, user: "u", password: "p"},
		"redis-cluster://u:p%2Fw@h1:1/":                {addrs: []string{"h1:1"}, user: "u", password: "p/w"},
		"redis-cluster://u:p@w@h1:1":                   {addrs: []string{"h1:1"}, user: "u", password: "p@w"},
		"redis-cluster://[::1]:7000,[::2]":             {addrs: []string{"[::1]:7000", "[::2]:6379"}},
		"redis-cluster://[::1]":                        {addrs: []string{"[::1]:6379"}},
		"redis-sentinel://h1,h2:26379/spill":           {addrs: []string{"h1:26379", "h2:26379"}},
		"redis-sentinel://u:p@h1:1,h2:2,h3:3/master/5": {addrs: []string{"h1:1", "h2:2", "h3:3"}, user: "u", password: "p", db: 5},
	} {
		b, err := connect(Config{URL: url})
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		var addrs []string
		var user, password string
		var db, retries int
		switch c := b.In.(type) {
		case *redis.ClusterClient:
			o := c.Options()
			addrs, user, password, retries = o.Addrs, o.Username, o.Password, o.MaxRetries
		case *redis.Client:
			o := c.Options()
			addrs, user, password, db, retries = []string{o.Addr}, o.Username, o.Password, o.DB, o.MaxRetries
		}
		if retries != 0 && retries != -1 {
			t.Errorf("%s: the client retries %d times by itself", url, retries)
		}
		if strings.HasPrefix(url, "redis-sentinel:") {
			addrs = want.addrs // the client of the master does not tell
		}
		if !slices.Equal(addrs, want.addrs) || user != want.user || password != want.password || db != want.db {
			t.Errorf("%s: got %v %q %q %d", url, addrs, user, password, db)
		}
		_ = b.closeClients()
		b.end()
	}
}

// Sentinels listen on a port of their own by default.
func TestSentinelsHaveADefaultPortOfTheirOwn(t *testing.T) {
	t.Parallel()
	b, err := connect(Config{URL: "redis-sentinel://127.0.0.77/spill"})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Out.Close()
	defer b.In.Close()
	if err := b.Out.Ping(t.Context()).Err(); err == nil || !strings.Contains(err.Error(), "127.0.0.77:26379") {
		t.Errorf("got %v, want a dial of 127.0.0.77:26379", err)
	}
}

var badURLs = []string{
	"", "redis", "http://h:1", "h:6379", "redis://h:1/x", "redis://u:hunter2@h:1/x", "embedded:x", "embedded://h",
	"redis-cluster://", "redis-cluster:h1", "redis-cluster://u:hunter2@", "redis-cluster://h1,,h2", "redis-cluster://h1/master",
	"redis-cluster://u:hunter2%zz@h1:1", "redis-cluster://h1:1//3", "redis-sentinel://h1", "redis-sentinel://u:hunter2@h1/",
	"redis-sentinel://u:hunter2@h1/m/x", "redis-sentinel://h1/m/-1", "redis://u:hunter2 @h:1", "redis://u:hunter2@h:port",
	"rediss://u:hunter2@[::1", "redis://u:hunter2@h:1?nonsense=hunter2", " redis://u:hunter2@h:1", "REDIS://u:hunter2@h:1\n",
}

func TestURLsThatAreNotUsable(t *testing.T) {
	t.Parallel()
	for _, url := range badURLs {
		b, err := connect(Config{URL: url})
		if err == nil {
			t.Errorf("%q: usable", url)
			_ = b.closeClients()
			b.end()
			continue
		}
		var wrong *FieldError
		if !errors.As(err, &wrong) || wrong.Field != "redis" || wrong.Want == "" {
			t.Errorf("%q: got %v, want a FieldError", url, err)
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%q: %v holds the password", url, err)
		}
	}
}

// An option that has no effect must be an error.
func TestUnsupportedOptionsAreErrors(t *testing.T) {
	t.Parallel()
	const own = ": time-outs, pools and retries are Spillway's own"
	for url, want := range map[string]string{
		"redis://u:hunter2@h:1/2?read_timeout=5s":               `option "read_timeout"|no option but db` + own,
		"redis://u:hunter2@h:1?db=1&pool_size=5":                `option "pool_size"|no option but db` + own,
		"redis://h:1?max_retries=3":                             `option "max_retries"|no option but db` + own,
		"redis://h:1?skip_verify=1":                             `option "skip_verify"|no option but db` + own,
		"redis://h:1?read_timeout":                              `option "read_timeout"|no option but db` + own,
		"rediss://u:hunter2@h:1?protocol=3":                     `option "protocol"|no option but db and skip_verify` + own,
		"unix://u:hunter2@/run/redis.sock?client_name=hunter2":  `option "client_name"|no option but db` + own,
		"redis-cluster://u:hunter2@h1,h2?max_redirects=3":       `option "max_redirects"|no option` + own,
		"redis-cluster://u:hunter2@h1,h2/?read_timeout=hunter2": `option "read_timeout"|no option` + own,
		"redis-sentinel://u:hunter2@h1,h2/m?db=3":               `option "db"|no option: the database comes after the master, as in redis-sentinel://h1,h2/master/3`,
		"redis-sentinel://u:hunter2@h1/m/2?read_timeout=1s":     `option "read_timeout"|no option` + own,
		"redis-sentinel://h1?master=m":                          `option "master"|no option` + own,
		"redis://h:1?db=1&db=2":                                 `option "db"|it once`,
		"redis://h:1/2?db=2":                                    `option "db"|the database once, as in redis://host:6379/2`,
		// Who does not escape a password must not find it in a log.
		"redis://h:1?HUNTER2":              "an option|no option but db" + own,
		"redis://h:1?db=1&hunter2.=x":      "an option|no option but db" + own,
		"redis://u:1?hunter2@h:1":          "the URL|" + wantURL,
		"redis://u:1#hunter2@h:1":          "the URL|" + wantURL,
		"redis://h:1/-1":                   "the URL|" + wantURL,
		"redis://h:1?db=-1":                "the URL|" + wantURL,
		"redis://h:1?db=hunter2":           "the URL|" + wantURL,
		"rediss://h:1?skip_verify=hunter2": "the URL|" + wantURL,
		"redis://h:1?%zz=hunter2":          "the URL|" + wantURL,
		"redis-cluster://h1:1?%zz=hunter2": "the URL|" + wantURL,
	} {
		b, err := connect(Config{URL: url})
		if err == nil {
			t.Errorf("%s: usable", url)
			_ = b.closeClients()
			b.end()
			continue
		}
		value, instead, _ := strings.Cut(want, "|")
		var wrong *FieldError
		if !errors.As(err, &wrong) || wrong.Field != "redis" || wrong.Value != value || wrong.Want != instead {
			t.Errorf("%s: got %v\nwant %s", url, err, want)
		}
		if strings.Contains(strings.ToLower(err.Error()), "hunter2") {
			t.Errorf("%s: %v holds the password", url, err)
		}
	}
}

func FuzzURL(f *testing.F) {
	for _, url := range badURLs {
		scheme, rest, _ := strings.Cut(url, ":")
		f.Add(scheme, "user", rest)
	}
	f.Add("redis-sentinel", "a,b@c/d", "h1,h2/m/3")
	f.Add("redis-cluster", "u@x", "h1,,h2")
	f.Add("redis", "%zz", "h:1/3")
	f.Add("redis", "u", "h#x")
	f.Add("rediss", "", "[::1")
	f.Add("redis", "u\r\n", "h")
	f.Add("redis", "", "h?read_timeout=-2&db=9")
	f.Add("redis-sentinel", "u", "a,b@c/d")
	f.Add("unix", "u", "/run/redis.sock?db=2")
	f.Fuzz(func(t *testing.T, scheme, user, rest string) {
		const password = "correct-horse-battery"
		for _, url := range []string{
			scheme + ":" + rest, scheme + "://" + user + ":" + password + "@" + rest, scheme + "://" + rest + "?password=" + password,
		} {
			if url == "embedded:" {
				continue // starts a server
			}
			b, err := connect(Config{URL: url})
			if err != nil {
				if strings.Contains(err.Error(), password) {
					t.Errorf("%q: %v holds the password", url, err)
				}
				continue
			}
			_ = b.closeClients()
			b.end()
		}
	})
}

// Every goroutine of a Backend ends with Close, except the client's own probe of a
// server that is down, which ends within a second.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/go-redis/v9/internal/pool.(*ConnPool).tryDial"))
}

func TestTheClientsLinesAreLoggedAtDebugLevel(t *testing.T) {
	t.Parallel()
	for level, want := range map[zapcore.Level]int{zap.InfoLevel: 0, zap.DebugLevel: 1} {
		core, lines := observer.New(level)
		var c clientLog
		c.to.Store(zap.New(core))
		c.Printf(t.Context(), "failed to dial after %d attempts", 1)
		if lines.Len() != want || want > 0 && lines.All()[0].ContextMap()["detail"] != "failed to dial after 1 attempts" {
			t.Errorf("at level %v: %v", level, lines.All())
		}
	}
}

func TestAnOutageIsLoggedOnceWhenItBeginsAndOnceWhenItEnds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		core, lines := observer.New(zap.InfoLevel)
		o := OutageLog{Log: zap.New(core), Level: zap.ErrorLevel, Began: "failing", Ended: "works"}
		for range 2 {
			for i := range 3 { // parts
				o.Begin(zap.Int("part", i))
			}
			clocktest.Pass(time.Minute)
			for range 3 {
				if o.Failing() == 0 {
					t.Error("no part fails before the last one ended")
				}
				o.End()
			}
		}
		got := ""
		for _, line := range lines.All() {
			got += fmt.Sprintln(line.Level, line.Message, line.ContextMap())
		}
		want := "error failing map[part:0]\ninfo works map[after:1m0s]\n"
		if got != want+want {
			t.Errorf("got\n%s, want twice\n%s", got, want)
		}
	})
}

// Masters that have equally many slots have equally many shards, whatever the namespace is called.
func TestShardsLieEvenlyOnMasters(t *testing.T) {
	t.Parallel()
	for _, masters := range []int{1, 2, 3, 4, 6, 12} {
		for i := range 50 {
			namespace, shards, on := fmt.Sprint("kart", i), 4*masters, map[int]int{}
			for shard := range shards {
				on[Slot(ShardPrefix("sw", namespace, shard, shards))*masters/Slots]++
			}
			for m := range masters {
				if on[m] < 3 || on[m] > 5 { // where masters meet, rounding may move one
					t.Errorf("%s: master %d of %d has %d of %d shards", namespace, m, masters, on[m], shards)
				}
			}
		}
	}
}

// It is part of the stored format.
func TestShardPrefixesNeverChange(t *testing.T) {
	t.Parallel()
	for i, want := range []string{"sw:{kart.0}:", "sw:{kart.1-", "sw:{kart.2-"} {
		got := ShardPrefix("sw", "kart", i, 3)
		if len(got) < len(want) || got[:len(want)] != want {
			t.Errorf("shard %d: %s", i, got)
		}
		if slot := Slot(got); slot != (Slot("{kart.0}")+i*Slots/3)%Slots {
			t.Errorf("shard %d: slot %d", i, slot)
		}
	}
	if ShardPrefix("sw", "kart", 0, 1) != ShardPrefix("sw", "kart", 0, 9) {
		t.Error("shard 0 depends on how many there are")
	}
}

func TestClockIsUnknownAtFirst(t *testing.T) {
	t.Parallel()
	var c Clock
	if _, ok := c.Now(); ok {
		t.Error("a clock that saw no reply knows the time")
	}
}

func TestClockFollowsTheStore(t *testing.T) {
	t.Parallel()
	ms := time.Millisecond
	for name, row := range map[string]struct {
		sent, received time.Duration // of a second reply, after the first
		store          int64         // what it said
		want           int64         // what the clock reads when it came, ±1
	}{
		"a reply that agrees":                  {100 * ms, 101 * ms, 5101, 5101},
		"a slow reply that agrees":             {100 * ms, 900 * ms, 5300, 5900},
		"a slow reply that disagrees a little": {100 * ms, 110 * ms, 5099, 5109},
		"the store is ahead":                   {100 * ms, 101 * ms, 9000, 9000},
		"the store is far ahead, slowly":       {100 * ms, 300 * ms, 9000, 9000},
		"the store stepped back":               {100 * ms, 101 * ms, 2000, 2001},
		"the store stepped back, slowly":       {100 * ms, 300 * ms, 2000, 2200},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var c Clock
				began := time.Now()
				c.Observe(began, began, 5000)
				clocktest.Pass(row.sent)
				sent := time.Now()
				clocktest.Pass(row.received - row.sent)
				c.Observe(sent, time.Now(), row.store)
				got, ok := c.Now()
				if !ok || got < row.want-1 || got > row.want+1 {
					t.Errorf("reads %d, want %d", got, row.want)
				}
				clocktest.Pass(time.Hour)
				if later, _ := c.Now(); later != got+time.Hour.Milliseconds() {
					t.Errorf("an hour later it reads %d more", later-got)
				}
			})
		})
	}
}

// Whatever the replies, the clock is never further off than the last round trip took.
func TestClockStaysWithinTheUncertaintyOfItsReplies(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c Clock
		began := time.Now()
		store := func() int64 { return time.Since(began).Milliseconds() + 1_700_000_000_000 }
		for i := range 500 {
			sent := time.Now()
			there := time.Duration(i*7919%40) * time.Millisecond
			back := time.Duration(i*104729%40) * time.Millisecond
			clocktest.Pass(there)
			said := store()
			clocktest.Pass(back)
			c.Observe(sent, time.Now(), said)
			if got, _ := c.Now(); got < store()-there.Milliseconds()-back.Milliseconds()-1 || got > store()+there.Milliseconds()+back.Milliseconds()+1 {
				t.Fatalf("reply %d: off by %d ms after %v there and %v back", i, got-store(), there, back)
			}
		}
	})
}

func TestReadsOfATenantLeaveRoomForOthersAndForOperators(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		rejected := prometheus.NewCounter(prometheus.CounterOpts{})
		l := NewReadLimit(4, time.Second, rejected)
		hold := make(chan struct{})
		greedy := share.As(t.Context(), "greedy")
		results := make(chan error, 200)
		for range 200 {
			go func() { results <- l.Do(greedy, func() error { <-hold; return nil }) }()
		}
		synctest.Wait()
		if len(results) != 200-131 { // three run and 128 wait
			t.Errorf("%d of 200 are rejected at once", len(results))
		}
		for _, ctx := range []context.Context{share.As(t.Context(), "calm"), t.Context()} {
			began := time.Now()
			if err := l.Do(ctx, func() error { return nil }); err != nil || time.Since(began) > 0 {
				t.Errorf("a read of another: %v, after %v", err, time.Since(began))
			}
		}
		clocktest.Pass(time.Second) // virtual: nobody waits for longer
		close(hold)
		synctest.Wait()
		read := 0
		for range 200 {
			if err := <-results; err == nil {
				read++
			} else if !errors.Is(err, ErrTooManyReads) || !errors.Is(err, ErrUnavailable) {
				t.Error(err)
			}
		}
		if read != 3 {
			t.Errorf("%d reads ran, want three", read)
		}
	})
}

// Two servers, and calls and commands for both at once.
func TestCallsAndPipelinesGoToTheBackendOfTheirShards(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	var both [2]*Backend
	for i := range both {
		b, err := Open(Config{URL: "embedded:"}, prometheus.NewRegistry(), zap.NewNop())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		both[i] = b
	}
	near, far := both[0], both[1]
	script := &lua.Script{Name: "put", Source: "redis.call('SET', KEYS[1], 1) return {tonumber(redis.call('TIME')[1]) * 1000}"}
	put := func(breaker *Breaker, key string) *Call {
		c := NewCall(script, breaker, []string{key})
		c.WithText()
		return c
	}
	near.Run(ctx, near.In, []*Call{put(near.NewBreaker("l"), "a"), put(far.NewBreaker("l"), "b"), put(nil, "c")})
	near.RunDurably(ctx, near.In, []*Call{put(far.NewBreaker("l"), "d")})
	for i, want := range [][]string{{"a", "c"}, {"b", "d"}} {
		keys := both[i].Out.Keys(ctx, "*").Val()
		if slices.Sort(keys); !slices.Equal(keys, want) {
			t.Errorf("server %d has %q, want %q", i, keys, want)
		}
		if _, known := both[i].Now(); !known {
			t.Errorf("the time of server %d was not taken from its answers", i)
		}
	}

	pipes := Pipes{}
	a, b := pipes.To(near.Out).Get(ctx, "a"), pipes.To(far.Out).Get(ctx, "b")
	none := pipes.To(far.Out).Get(ctx, "a")
	if err := pipes.Exec(ctx); err != nil || a.Val() != "1" || b.Val() != "1" || !errors.Is(none.Err(), redis.Nil) {
		t.Errorf("%v, %v, %v, %v", err, a, b, none)
	}
	_ = far.Close()
	a, b = pipes.To(near.Out).Get(ctx, "a"), pipes.To(far.Out).Get(ctx, "b")
	if err := pipes.Exec(ctx); err == nil || a.Val() != "1" || b.Err() == nil {
		t.Errorf("one away: %v, %v, %v", err, a, b)
	}
}
