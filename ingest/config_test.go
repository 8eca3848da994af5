package ingest

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/partition"
)

func TestDefaultsAreValidAndEachInvalidSettingIsNamed(t *testing.T) {
	t.Parallel()
	if err := DefaultConfig().Validate(); err != nil {
		t.Error(err)
	}
	for field, edits := range map[string][]func(*Config){
		"lanes":              {func(c *Config) { c.Lanes = 0 }, func(c *Config) { c.Lanes = 65 }},
		"max_inflight_bytes": {func(c *Config) { c.MaxInflightBytes = 0 }, func(c *Config) { c.MaxInflightBytes = 13<<20 + entryOverhead - 1 }, func(c *Config) { c.MaxInflightBytes = 1<<40 + 1 }},
		"max_body":           {func(c *Config) { c.MaxBody = 0 }, func(c *Config) { c.MaxBody = 1<<30 + 1 }},
		"max_decompressed":   {func(c *Config) { c.MaxDecompressed = c.MaxBody - 1 }},
		"max_entries":        {func(c *Config) { c.MaxEntries = 0 }, func(c *Config) { c.MaxEntries = 1001 }},
		"max_entry":          {func(c *Config) { c.MaxEntry = 0 }, func(c *Config) { c.MaxEntry = c.MaxDecompressed + 1 }},
		"read_timeout":       {func(c *Config) { c.ReadTimeout = 0 }, func(c *Config) { c.ReadTimeout = 1 }, func(c *Config) { c.ReadTimeout = math.MaxInt64 }},
		"write_timeout":      {func(c *Config) { c.WriteTimeout = -1 }, func(c *Config) { c.WriteTimeout = 1 }},
		"idle_timeout":       {func(c *Config) { c.IdleTimeout = 0 }, func(c *Config) { c.IdleTimeout = 1 }},
		"max_conns":          {func(c *Config) { c.MaxConns = 0 }, func(c *Config) { c.MaxConns = 1<<20 + 1 }},
		"produce_timeout":    {func(c *Config) { c.ProduceTimeout = 0 }, func(c *Config) { c.ProduceTimeout = 1 }},
	} {
		for i, edit := range edits {
			cfg := DefaultConfig()
			edit(&cfg)
			_, err := New(cfg, newFake(), prometheus.NewRegistry(), zap.NewNop())
			var wrong *partition.FieldError
			if !errors.As(err, &wrong) || wrong.Field != field {
				t.Errorf("%s, %d: got %v", field, i, err)
			}
		}
	}
}

func TestTheLargestRequestsFitIntoTheSmallestBudget(t *testing.T) {
	t.Parallel()
	for _, size := range []int{300_000, 1 << 20, 4 << 20} {
		lines := strings.Repeat(strings.Repeat("x", size/1000-1)+"\n", 1000)
		var b strings.Builder
		for i := range 1000 {
			fmt.Fprintf(&b, `{"partition":"%s%d","id":"%s","data":"`, strings.Repeat("p", 124), i, strings.Repeat("i", 64))
			b.WriteString(strings.Repeat("x", max(0, size*(i+1)/1000-b.Len()-3)) + "\"}\n")
		}
		for name, r := range map[string][3]string{
			"plain": {lines, "/v1/default/p", "identity"}, "gzip": {gzipped(t, lines), "/v1/default/p", "gzip"},
			"zstd": {zstded(t, lines), "/v1/default/p", "zstd"}, "mixed": {b.String(), "/v1/default", "identity"},
			"mixed gzip": {gzipped(t, b.String()), "/v1/default", "gzip"},
		} {
			p := listen(t, newFake(), func(c *Config) {
				c.MaxBody, c.MaxDecompressed = max(len(r[0]), 1000), size
				c.MaxInflightBytes = int64(c.MaxBody) + 3*int64(size) + entryOverhead
			})
			if got := p.post(r[1], r[0], asNDJSON, "Content-Encoding: "+r[2]); got.status != 200 || got.body.Accepted != 1000 {
				t.Errorf("%s of %d bytes: got %d %.200s", name, size, got.status, got.raw)
			}
		}
	}
}

func TestMalformedOptionsAreRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for _, c := range []struct{ header, code string }{
		{"X-Sent-At: soon", "bad_time"}, {"X-Sent-At: 1.5", "bad_time"}, {"X-Sent-At: -1", "bad_time"},
		{"X-Event-Ts: 1763629675100123", "bad_time"}, {"X-Event-Ts: 0x10", "bad_time"},
		{"Idempotency-Key: " + strings.Repeat("k", 129), "bad_header"}, {"Idempotency-Key: \xc3\xa9", "bad_header"},
		{"X-Client-Discards: stale", "bad_header"}, {"X-Client-Discards: stale=-1", "bad_header"},
	} {
		r := p.post("/v1/default/p", "x", c.header)
		if r.status != 400 || r.body.Error != c.code {
			t.Errorf("%s: got %d %s, want %s", c.header, r.status, r.raw, c.code)
		}
	}
	for _, fine := range []string{"?unknown=1", "?"} {
		p.post("/v1/default/p"+fine, "x", "Idempotency-Key: "+strings.Repeat("k", 128)).expect(t, 200, "")
	}
}

// withLimits gives "default" a token "bounded" with limits and a token "free" without.
func withLimits(maxEntries int, rate, newPartitions Quota) func(*Config) {
	return func(c *Config) {
		c.MaxEntries = maxEntries
		c.Tokens = map[string][]Token{"default": {
			{Hash: hashOf("bounded"), Name: "bounded", Rate: rate, NewPartitions: newPartitions},
			{Hash: hashOf("free"), Name: "free"},
		}}
	}
}

func lines(n int) string { return strings.Repeat("1\n", n) }

func TestATokenMaySendAsManyEntriesAsItsRate(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withLimits(10, Quota{30, time.Hour}, Quota{}))
	send := func(token string, n int) *reply {
		return p.post("/v1/default/p", lines(n), asNDJSON, bearerHeader(token))
	}
	for range 2 {
		send("bounded", 10).expect(t, 200, "")
	}
	send("bounded", 5).expect(t, 200, "")
	r := send("bounded", 6) // 5 are left
	r.expect(t, 429, "rate_limited")
	// 30 an hour: the missing one takes two minutes.
	if after, _ := strconv.Atoi(r.header.Get("Retry-After")); r.body.Scope != "token" || after < 110 || after > 120 {
		t.Errorf("got scope %q, Retry-After %s, want token, 120", r.body.Scope, r.header.Get("Retry-After"))
	}
	send("bounded", 5).expect(t, 200, "") // a rejected request is not charged
	send("bounded", 1).expect(t, 429, "rate_limited")
	p.post("/v1/default", `{"partition":"q","data":1}`, asNDJSON, bearerHeader("bounded")).expect(t, 429, "rate_limited")
	send("free", 10).expect(t, 200, "")

	if n := len(p.store.entries("default/p")); n != 40 {
		t.Errorf("%d entries are stored, want 40", n)
	}
	if got := p.metric("token_limited_total", "rate_limited", "default", "bounded"); got != 3 {
		t.Errorf("%v requests are counted as limited, want 3", got)
	}
}

func TestATokenWithNoRateLeftIsRejectedBeforeItsBodyIsRead(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withLimits(2, Quota{1, time.Hour}, Quota{}))
	p.post("/v1/default/p", lines(2), asNDJSON, bearerHeader("bounded")).expect(t, 200, "")
	p.post("/v1/default/p", "not gzip", "Content-Encoding: gzip", bearerHeader("bounded")).expect(t, 429, "rate_limited")
}

func TestARateSmallerThanARequestStillAdmitsTheRequest(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), withLimits(1000, Quota{1, time.Second}, Quota{}))
	p.post("/v1/default/p", lines(1000), asNDJSON, bearerHeader("bounded")).expect(t, 200, "")
}
