package ingest

import (
	"strings"
	"testing"
)

func TestAckGivenTwiceIsRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for _, query := range []string{"?ack=none&ack=commit", "?ack=none&ack=none", "?ack=commit&%61ck=none"} {
		p.post("/v1/default/p"+query, "x").expect(t, 400, "bad_request")
	}
	p.post("/v1/default/p?x=1&ack=none", "x").expect(t, 202, "")
}

func TestMalformedOptionsAreRejected(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	for _, c := range []struct{ query, header, code string }{
		{"", "X-Sent-At: soon", "bad_time"}, {"", "X-Sent-At: 1.5", "bad_time"}, {"", "X-Sent-At: -1", "bad_time"},
		{"", "X-Event-Ts: 1763629675100123", "bad_time"}, {"", "X-Event-Ts: 0x10", "bad_time"},
		{"", "Idempotency-Key: " + strings.Repeat("k", 129), "bad_header"}, {"", "Idempotency-Key: \xc3\xa9", "bad_header"},
		{"", "X-Client-Discards: stale", "bad_header"}, {"", "X-Client-Discards: stale=-1", "bad_header"},
		{"?ack=all", "X: y", "bad_request"}, {"?ack=", "X: y", "bad_request"}, {"?ack", "X: y", "bad_request"}, {"?x=1&ack=NONE", "X: y", "bad_request"},
	} {
		r := p.post("/v1/default/p"+c.query, "x", c.header)
		if r.status != 400 || r.body.Error != c.code {
			t.Errorf("%s %s: got %d %s, want %s", c.query, c.header, r.status, r.raw, c.code)
		}
	}
	for _, fine := range []string{"?ack=commit", "?x=1&ack=commit", "?unknown=1", "?", "?ack=%63ommit"} {
		p.post("/v1/default/p"+fine, "x", "Idempotency-Key: "+strings.Repeat("k", 128)).expect(t, 200, "")
	}
}
