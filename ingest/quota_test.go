package ingest

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/backend/backendtest"
	"github.com/spillway-io/spillway/partition/clocktest"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

func TestAQuotaIsParsedAndFormatted(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"5000/s", "100/min", "20/h", "1/s", "1000000000/h"} {
		var q Quota
		if err := q.UnmarshalText([]byte(text)); err != nil || q.String() != text {
			t.Errorf("%s: got %s, %v", text, q, err)
		}
	}
	for _, text := range []string{"", "5000", "5000/", "/s", "5k/s", "0/s", "-1/s", "1.5/s", "5000/m", "5000/S", "5000 / s", "5000/s ", "2000000000/s"} {
		var q Quota
		if err := q.UnmarshalText([]byte(text)); err == nil || !strings.Contains(err.Error(), "5000/s") {
			t.Errorf("%q: got %s, %v, want an error that says how", text, q, err)
		}
	}
}

// FuzzQuota checks that String of a parsed quota parses to the same quota.
func FuzzQuota(f *testing.F) {
	for _, text := range []string{"5000/s", "100/min", "20/h", "0/s", "-1/h", "1e3/s", "1/d", "/", "9223372036854775808/s", "٣/s", "5", "+5/s", "1/s/s", "1_0/s"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var q, again Quota
		if q.UnmarshalText([]byte(text)) != nil {
			return
		}
		if err := again.UnmarshalText([]byte(q.String())); err != nil || again != q || q.Count < 1 || q.Per <= 0 {
			t.Fatalf("%q parses as %+v, formatted %s, %v", text, q, q, err)
		}
	})
}

func TestATokenMayUseAsManyNewPartitionsAsItsQuota(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withLimits(1000, Quota{}, Quota{3, time.Hour}))
	send := func(name, token string) *reply { return p.post("/v1/default/"+name, "x", bearerHeader(token)) }
	for _, name := range []string{"a", "b", "a", "c", "b", "a"} {
		send(name, "bounded").expect(t, 200, "")
	}
	r := send("d", "bounded")
	r.expect(t, 429, "too_many_partitions")
	if r.body.Scope != "token" || r.header.Get("Retry-After") != "1200" {
		t.Errorf("got scope %q, Retry-After %q, want token and 1200", r.body.Scope, r.header.Get("Retry-After"))
	}
	send("a", "bounded").expect(t, 200, "") // a partition in use is not charged
	send("d", "free").expect(t, 200, "")
	if got := p.store.entries("default/d"); len(got) != 1 {
		t.Errorf("d holds %d entries, want the other token's", len(got))
	}
}

func TestOfAMixedRequestOnlyNewPartitionsAreRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withLimits(1000, Quota{}, Quota{2, time.Hour}))
	send := func(names ...string) *reply {
		var body strings.Builder
		for _, name := range names {
			fmt.Fprintf(&body, "{\"partition\":%q,\"data\":1}\n", name)
		}
		return p.post("/v1/default", body.String(), asNDJSON, bearerHeader("bounded"))
	}
	send("a").expect(t, 200, "")
	r := send("new", "b", "a", "new", "newer", "b")
	r.expect(t, 200, "")
	// "new" comes first and takes the rest of the quota; none is left for b.
	if got, want := r.results(), "1:retry/too_many_partitions 4:retry/too_many_partitions 5:retry/too_many_partitions"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if r.body.Accepted != 3 || r.body.Rejected != 3 {
		t.Errorf("got %d accepted, %d rejected, want 3 and 3", r.body.Accepted, r.body.Rejected)
	}
	r = send("b", "c")
	r.expect(t, 429, "too_many_partitions")
	if r.body.Scope != "token" {
		t.Errorf("got scope %q", r.body.Scope)
	}
	if got := p.metric("entries_total", "default", "too_many_partitions"); got != 5 {
		t.Errorf("%v entries are counted as rejected, want 5", got)
	}
}

func TestTheQuotaOfNewPartitionsRefillsAndPartitionsInUseAreNotCharged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNewPartitionLimiter(Quota{2, time.Minute})
		admit := func(name string, want bool) {
			t.Helper()
			if got := n.admit(name, time.Now()); got != want {
				t.Errorf("%s: got %t, want %t", name, got, want)
			}
		}
		admit("a", true)
		admit("b", true)
		admit("c", false)
		clocktest.Pass(31 * time.Second) // the quota has refilled by one
		admit("c", true)
		admit("d", false)
		for range 20 { // kept in use over several generations
			clocktest.Pass(4 * time.Minute)
			admit("a", true)
		}
		// b was forgotten long ago, so it is new, and the burst of two is used up.
		admit("x", true)
		admit("y", true)
		admit("b", false)
		admit("a", true)
	})
}

func TestTheNamesThatATokenRemembersAreBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNewPartitionLimiter(Quota{500, time.Second})
		if n.maxNames > 1<<20 {
			t.Errorf("a generation holds up to %d names", n.maxNames)
		}
		n.maxNames = 10_000 // so many take less time
		for i := range 3 * n.maxNames {
			n.admit(strconv.Itoa(i), time.Now())
			if i%500 == 0 {
				clocktest.Pass(time.Second)
			}
		}
		if kept := len(n.current) + len(n.previous); kept > 2*n.maxNames || kept < n.maxNames {
			t.Errorf("got %d names, want at most %d", kept, 2*n.maxNames)
		}
	})
}

func TestNamesInUseAreNotChargedHoweverManyThereAre(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const names = 3000 // the quota of three hours
		n := newNewPartitionLimiter(Quota{1000, time.Hour})
		known := 0
		for range 5 * 12 { // used every 5 minutes
			for i := range known {
				if !n.admit(strconv.Itoa(i), time.Now()) {
					t.Fatalf("name %d of %d in use is rejected as new", i, known)
				}
			}
			for known < names && n.admit(strconv.Itoa(known), time.Now()) {
				known++
			}
			clocktest.Pass(5 * time.Minute)
		}
		if known != names {
			t.Errorf("%d names were admitted, want %d", known, names)
		}
	})
}

// sharedToken is a token of the namespace mail with rates that processes share.
func sharedToken(t *testing.T) (made control.Token, store *backend.Backend) {
	t.Helper()
	ctx := context.Background()
	store = backendtest.Open(t, backend.Config{URL: "embedded:"})
	c := control.Open("sw", prometheus.NewRegistry(), zap.NewNop())
	c.Use(control.File{}, control.Pools{control.DefaultPool: store})
	hash := control.HashToken("one")
	rate := partition.Rate{Count: 10, Per: time.Hour}
	if err := c.CreateTokenIn(ctx, control.Namespace{Name: "mail", Policy: job.DefaultPolicy()}, control.Token{Hash: hash, Name: "crm", Produce: rate}); err != nil {
		t.Fatal(err)
	}
	return *c.Snapshot().Token("mail", hash), store
}

func TestAMountTakesFromTheSharedRatesOfAToken(t *testing.T) {
	t.Parallel()
	made, store := sharedToken(t)
	take := 4
	p := listen(t, newFake(), mounted(func(c *Config) {
		c.Mounts[1].Handler = func(x *Exchange) *Rejection {
			key, rejected := x.Authenticate("mail", x.Bearer())
			if rejected != nil {
				return rejected
			}
			taken, rejected := key.Take(t.Context(), key.Limiters().Produce, take)
			if rejected != nil {
				return rejected
			}
			if string(x.Path()) == "mail/none" {
				taken.Refund()
			}
			return echo(x)
		}
	}))
	set := func(tokens map[string][]Token) {
		t.Helper()
		if err := p.SetTokens(tokens, []string{"mail"}); err != nil {
			t.Fatal(err)
		}
	}
	post := func(path string) *reply { return p.post(path, "x", "Authorization: Bearer one") }
	set(map[string][]Token{"mail": {{Hash: made.Hash, Name: made.Name, Limiters: made.Limiters}}})
	for range 5 {
		post("/v1/mail/none").expect(t, 201, "")
	}
	post("/v1/mail/q").expect(t, 201, "")
	post("/v1/mail/q").expect(t, 201, "")
	r := post("/v1/mail/q")
	r.expect(t, 429, string(wire.CodeRateLimited))
	if after, _ := strconv.Atoi(r.header.Get("Retry-After")); after < 3500 || after > 3600 || r.body.Scope != "token" {
		t.Errorf("got scope %q, Retry-After %s, want token and the end of the hour", r.body.Scope, r.header.Get("Retry-After"))
	}
	take = 11
	post("/v1/mail/q").expect(t, 413, string(wire.CodeTooManyEntries))
	if got := p.metric("token_limited_total", "rate_limited", "mail", "crm"); got != 2 {
		t.Errorf("%v requests are counted as limited, want 2", got)
	}
	take = 3
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	post("/v1/mail/q").expect(t, 429, string(wire.CodeRateLimited)) // known without asking
	set(nil)
	if got := p.metric("token_limited_total", "rate_limited", "mail", "crm"); got != 0 {
		t.Errorf("a token that is gone still has metrics: %v", got)
	}
	var nobody *Key
	if taken, rejected := nobody.Take(context.Background(), nobody.Limiters().Produce, 1<<30); rejected != nil || taken != (control.Taken{}) {
		t.Errorf("a namespace without tokens is limited: %v", rejected)
	}
}

func TestASharedRateWithoutItsStoreRejects(t *testing.T) {
	t.Parallel()
	made, store := sharedToken(t)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	of := &key{Token: Token{Limiters: made.Limiters}}
	if _, rejected := of.Take(context.Background(), of.Limiters().Produce, 1); rejected == nil || rejected.Code != wire.CodeStoreUnavailable {
		t.Errorf("got %v", rejected)
	}
}
