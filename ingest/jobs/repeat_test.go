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
			e, err := New(cfg, p.store, func(on func(job.WakeEvent)) Wakes { return job.NewWakes(p.store, on) }, prometheus.NewRegistry(), zap.NewNop())
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
