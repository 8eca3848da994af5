package jobs

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition/job"
)

func TestPublishTakesTheFormsOfEntries(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for i, c := range []struct {
		body, kind string
		want       string
	}{
		{"hello", "", "hello"},
		{"a\nb\n", "", "a\nb\n"},
		{"a\nb\n\nc", "application/x-ndjson", "a b c"},
		{`[1,"two",{"three":[4]}]`, "application/json", `1 "two" {"three":[4]}`},
		{` {"batch":[1,2]}`, "application/json; charset=utf-8", ` {"batch":[1,2]}`},
		{`{"sent_at":"x","batch":[1,2]}`, "application/json", `{"sent_at":"x","batch":[1,2]}`},
		{"\x00\xff\"", "application/octet-stream", "\x00\xff\""},
	} {
		queue := fmt.Sprint("q", i)
		r := p.do("POST", "/v1/mail/"+queue, c.body, "Content-Type: "+c.kind)
		got := p.do("POST", "/v1/mail/"+queue+"/claim?count=9", "")
		if r.status != 200 || r.Accepted != len(got.Jobs) || len(r.IDs) != len(got.Jobs) || got.data() != c.want {
			t.Errorf("%q: got %s and then %s", c.body, r.raw, got.raw)
			continue
		}
		for j := range r.IDs {
			if got.Jobs[j].ID != r.IDs[j] || got.Jobs[j].Attempt != 1 || got.Jobs[j].Tries != 25 || got.Jobs[j].Queue != queue || got.Jobs[j].Deadline != 5000+60_000 {
				t.Errorf("%q: got %+v", c.body, got.Jobs[j])
			}
		}
	}
}

func TestPublishPassesItsOptionsOn(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	var seen job.Publish
	p.store.With(func() {
		p.store.Fail = func(b *job.Batch) error {
			if len(b.Publishes) == 1 {
				seen = *b.Publishes[0]
			}
			return nil
		}
	})
	r := p.do("POST", "/v1/mail/q?delay=1.5s&ttl=1h&tries=7&id=order-7&dedup=24h", "x", "Idempotency-Key: k", "Prefer: return=minimal")
	if r.status != 204 || seen.Delay != 1500*time.Millisecond || seen.TTL != time.Hour || seen.Tries != 7 || seen.CallerID != "order-7" || seen.Key != "k" || seen.KeyTTL != 24*time.Hour {
		t.Errorf("got %d %s and %+v", r.status, r.raw, seen)
	}
	if p.do("POST", "/v1/mail/q?ttl=100us", "x"); seen.TTL != time.Millisecond {
		t.Errorf("a ttl of less than a millisecond became %v: 0 is for ever", seen.TTL)
	}
	r = p.do("POST", "/v1/mail/s?shards=3", "x")
	got := p.do("POST", "/v1/mail/s/take?count=9", "")
	if len(r.IDs) != 3 || len(got.Jobs) != 3 || got.Jobs[2].Attributes["shard_index"] != "2" || got.Jobs[2].Attributes["shard_total"] != "3" {
		t.Errorf("got %s and %s", r.raw, got.raw)
	}
}

func TestRulesSayDelayAndLeaseWhereRequestsDoNot(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Rules = []job.Rule{{Match: "slow", Delay: job.Span(5 * time.Second), TTR: job.Span(10 * time.Minute)}, {Match: "*", TTR: job.Span(2 * time.Minute)}}
	p := served(t, map[string]job.Policy{"mail": policy}, nil)
	var delay, ttr time.Duration
	p.store.With(func() {
		p.store.Fail = func(b *job.Batch) error {
			for _, x := range b.Publishes {
				delay = x.Delay
			}
			for _, c := range b.Claims {
				ttr = c.TTR
			}
			return nil
		}
	})
	for _, c := range []struct {
		publish, claim string
		delay, ttr     time.Duration
	}{
		{"slow", "slow", 5 * time.Second, 10 * time.Minute},
		{"slow?delay=0s", "slow/claim?ttr=1s", 0, time.Second},
		{"other", "other,slow", 0, 10 * time.Minute},
		{"other?delay=1s", "other", time.Second, 2 * time.Minute},
	} {
		if !strings.Contains(c.claim, "/") {
			c.claim += "/claim"
		}
		published, claimed := p.do("POST", "/v1/mail/"+c.publish, "x"), p.do("POST", "/v1/mail/"+c.claim, "")
		if published.status != 200 || claimed.status != 200 || delay != c.delay || ttr != c.ttr {
			t.Errorf("%s, %s: got %v and %v, want %v and %v", c.publish, c.claim, delay, ttr, c.delay, c.ttr)
		}
	}
}

func TestRepeatsOfAQueueOverShardsMeetTheFirst(t *testing.T) {
	t.Parallel()
	policy := job.DefaultPolicy()
	policy.Shards, policy.Spread = 8, map[string]int{"q": 8}
	p := served(t, map[string]job.Policy{"mail": policy}, nil)
	used := map[int]bool{}
	p.store.With(func() {
		p.store.Fail = func(b *job.Batch) error {
			for _, x := range b.Publishes {
				used[x.Shard] = true
			}
			return nil
		}
	})
	for _, headers := range [][]string{{"Idempotency-Key: a"}, nil} {
		for range 8 {
			path := "/v1/mail/q?id=x"
			if headers != nil {
				path = "/v1/mail/q"
			}
			p.do("POST", path, "x", headers...)
		}
		if len(used) != 1 {
			t.Errorf("%v: repeats went to %d shards", headers, len(used))
		}
		clear(used)
	}
	for range 16 {
		p.do("POST", "/v1/mail/q", "x")
	}
	if len(used) != 8 {
		t.Errorf("others went to %d shards", len(used))
	}
}

// A higher spread moves the keys that the shard more takes, and no others.
func TestAHigherSpreadMovesAsFewKeysAsItCan(t *testing.T) {
	t.Parallel()
	const keys = 600
	var before [keys]int
	most := 5
	if testing.Short() {
		most = 3
	}
	for spread := 1; spread <= most; spread++ {
		policy := job.DefaultPolicy()
		policy.Shards = 8
		if spread > 1 {
			policy.Spread = map[string]int{"q": spread}
		}
		p := served(t, map[string]job.Policy{"mail": policy}, nil)
		ns := p.store.Namespace("mail")
		last, moved := ns.Shards("q")[spread-1], 0
		for i := range keys {
			id := p.do("POST", fmt.Sprint("/v1/mail/q?id=order-", i), "x").IDs[0]
			ref, ok := ns.ParseID("q", id)
			if !ok || ref.Shard != before[i] && ref.Shard != last {
				t.Fatalf("spread %d: key %d is in shard %d, was in %d", spread, i, ref.Shard, before[i])
			}
			if ref.Shard != before[i] || spread == 1 {
				moved++
			}
			before[i] = ref.Shard
		}
		if share := keys / spread; moved < share*3/4 || moved > share*5/4 {
			t.Errorf("spread %d: %d of %d keys moved, want about %d", spread, moved, keys, share)
		}
	}
}

// storesOrRejects checks the answer to a publish, and that all of it is stored or nothing.
func (p *port) storesOrRejects(t *testing.T, status int, code, path, body string, headers ...string) {
	t.Helper()
	before, _ := p.store.ready("q")
	r := p.do("POST", path, body, headers...)
	after, _ := p.store.ready("q")
	if stored := after - before; r.status != status || r.Error != code || (stored > 0) != (status == 200) {
		t.Errorf("%.60s with %d bytes: got %d %.80s, and %d jobs were stored", path, len(path)+len(body), r.status, r.raw, stored)
	}
}

// All jobs of a request have the attributes that its URL names once: 7.5 kB would make 7 MB.
func TestAttributesCountOnceAJobAgainstTheBoundsOfTheRequest(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for _, c := range []struct {
		jobs, bytes, status int
		code                string
	}{
		{1000, 7000, 413, "body_too_large"}, {100, 7000, 200, ""}, {1000, 100, 200, ""}, {160, 7000, 413, "body_too_large"},
	} {
		p.storesOrRejects(t, c.status, c.code, "/v1/mail/q?attribute.a="+strings.Repeat("x", c.bytes), strings.Repeat("1\n", c.jobs), asNDJSON)
	}
}

// What shards makes of one small request counts as if the request had sent it.
func TestShardsCountAgainstTheBoundsOfTheRequest(t *testing.T) {
	t.Parallel()
	p := served(t, nil, nil)
	for _, c := range []struct {
		shards, bytes, status int
		code                  string
	}{
		{1000, 32 << 10, 413, "body_too_large"}, {1000, 1010, 413, "body_too_large"}, {1000, 1000, 200, ""}, {31, 32 << 10, 200, ""}, {32, 32 << 10, 413, "body_too_large"},
	} {
		p.storesOrRejects(t, c.status, c.code, fmt.Sprint("/v1/mail/q?shards=", c.shards), strings.Repeat("x", c.bytes))
	}
}

// A repeat comes when the clock has gone on, or with other settings: what was taken must not be rejected then.
func TestARepeatIsFoundBeforeItIsJudged(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"redis": redistest.Start(t).URL(), "embedded": "embedded:", "cluster": redistest.StartMasters(t, 2).URL()} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			policy := job.DefaultPolicy()
			policy.Shards, policy.Spread = 4, map[string]int{"q": 4}
			p := startProcess(t, at, policy, nil)
			// tight is the same service after a reload, in which everything is smaller.
			cfg := DefaultConfig()
			cfg.MaxEntry, cfg.MaxEntries, cfg.MaxBody = 10, 2, 100
			e, err := New(cfg, p.store, prometheus.NewRegistry(), zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Stop(context.Background()) })
			tight := &process{listen(t, newFake(t, map[string]job.Policy{"mail": policy}), e, nil), p.store, p.stored}

			past, later := url.QueryEscape("2001-01-01T00:00:00Z"), url.QueryEscape(time.Now().Add(time.Hour).UTC().Format(time.RFC3339))
			long, lines := strings.Repeat("x", 50), "1\n2\n3"
			for i, c := range []struct {
				first, repeat, body, code string
				status                    int
			}{
				{"at=" + later, "at=" + past, "x", "bad_at", 400},
				{"at=" + later + "&ttl=2h", "at=" + past + "&ttl=2h", "x", "bad_at", 400},
				{"delay=1s&ttl=5s", "delay=1s&ttl=1s", "x", "bad_ttl", 400},
				{"tries=2", "tries=2", long, "entry_too_large", 413},
				{"shards=2", "shards=2", "123456789", "body_too_large", 413},
				{"", "", lines, "too_many_entries", 413},
				{"shards=3", "shards=3", "x", "too_many_entries", 413},
			} {
				header := []string{fmt.Sprint("Idempotency-Key: k", i)}
				if c.body == lines {
					header = append(header, asNDJSON)
				}
				tight.expect(c.status, c.code, "POST", "q?"+c.repeat, c.body, header...)
				first := p.expect(200, `"accepted":`, "POST", "q?"+c.first, c.body, header...)
				again := tight.expect(200, `"repeated":true`, "POST", "q?"+c.repeat, c.body, header...)
				if fmt.Sprint(again.IDs) != fmt.Sprint(first.IDs) || again.Accepted != first.Accepted {
					t.Errorf("%s: got %s, the first was %s", c.repeat, again.raw, first.raw)
				}
				if c.body == lines || strings.HasPrefix(c.first, "shards") {
					continue
				}
				for _, named := range []string{fmt.Sprintf("&id=i%d", i), fmt.Sprintf("&unique=1h&unique_key=u%d", i), fmt.Sprintf("&unique=1h&id=v%d&on_conflict=replace", i)} {
					tight.expect(c.status, c.code, "POST", "q?"+c.repeat+named, c.body)
					first := p.expect(200, `"accepted":1`, "POST", "q?"+c.first+named, c.body)
					again := tight.expect(200, `"exists":true`, "POST", "q?"+c.repeat+named, c.body)
					if len(again.IDs) != 1 || again.IDs[0] != first.IDs[0] || again.Accepted != 0 {
						t.Errorf("%s: got %s, the first was %s", named, again.raw, first.raw)
					}
				}
			}
			for _, wrong := range []string{"at=tomorrow", "delay=1s&at=" + later} {
				tight.expect(400, "bad_at", "POST", "q?"+wrong, "x", "Idempotency-Key: k0")
			}
			tight.expect(400, "bad_tries", "POST", "q?tries=0&at="+past, "x", "Idempotency-Key: k0")
		})
	}
}

func TestATriggerIsFoundUnderItsKeyWhateverBecameOfTheSchedule(t *testing.T) {
	t.Parallel()
	for name, at := range map[string]string{"redis": redistest.Start(t).URL(), "embedded": "embedded:"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := startFiring(t, at, nil)
			const trigger = "reports/schedules/s/trigger"
			p.expect(201, "created", "PUT", "reports/schedules/s", `{"every":"1h","overlap":"skip"}`)
			first := p.expect(200, `"accepted":1`, "POST", trigger, "", "Idempotency-Key: k")
			p.expect(409, "run_unfinished", "POST", trigger, "", "Idempotency-Key: other")
			p.expect(200, "deleted", "DELETE", "reports/schedules/s", "")
			again := p.expect(200, `"repeated":true`, "POST", trigger, "", "Idempotency-Key: k")
			if fmt.Sprint(again.IDs) != fmt.Sprint(first.IDs) {
				t.Errorf("got %s, the first was %s", again.raw, first.raw)
			}
			p.expect(404, "no_such_schedule", "POST", trigger, "", "Idempotency-Key: other")
			p.expect(404, "no_such_schedule", "POST", trigger, "")
		})
	}
}
