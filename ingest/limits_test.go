package ingest

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

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
