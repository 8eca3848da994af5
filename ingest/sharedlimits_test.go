package ingest

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
	"github.com/spillway-io/spillway/partition/control"
	"github.com/spillway-io/spillway/partition/job"
)

// sharedToken is a token of the namespace mail with rates that processes share.
func sharedToken(t *testing.T) (made control.Token, store *backend.Backend) {
	t.Helper()
	ctx := context.Background()
	store, err := backend.Open(backend.Config{URL: "embedded:"}, prometheus.NewRegistry(), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
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
