package jobs

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/partition/job"
)

// FuzzSettlement feeds lines to a settle: each has one result, and the answer is JSON. What is
// read without the decoder is what the decoder reads.
func FuzzSettlement(f *testing.F) {
	ns, err := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	if err != nil {
		f.Fatal(err)
	}
	id := ns.ID(0, "q", 1_763_629_675_123_456, "mine")
	for _, line := range []string{
		`{"id":"` + id + `","attempt":1,"do":"ack"}`, `{"id":"` + id + `","do":"nack","ms":5}`, `{"id":"x","do":"\u0000"}`, `[`, "\xff", `{"ID":1e999}`, `{"do":"ack"} x`,
		`{"do":"bury","do":"ack","id":"` + id + `","id":"x"}`, `{"ms":7,"ms":null,"attempt":-0}`, `{"ms":01}`, `{"do":"\u0061ck","id":"\ud800"}`, `{"\u0069d":"a\/b"}`,
		` {"deadline_ms" : 9223372036854775807 }	`, `{"ms":9223372036854775808}`, `{"ms":1e3}`, `{"ms":"5"}`, `{"id":"a","when":1}`, `{"id":"a",}`, `null`, ``,
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		var read, decoded settlement
		if read.read([]byte(line)) {
			wrong := decoded.decode([]byte(line))
			plain := utf8.ValidString(line) && !strings.Contains(line, `\u`) // the texts of others differ, and are no ids or verbs
			if wrong != "" || read.Attempt != decoded.Attempt || read.MS != decoded.MS || read.DeadlineMS != decoded.DeadlineMS ||
				plain && (read.ID != decoded.ID || read.Do != decoded.Do) {
				t.Errorf("%q: %+v, the decoder has %+v %s", line, read, decoded, wrong)
			}
		}
		s := parseSettlement(ns, "q", []byte(line))
		if s.wrong != "" && (s.ack != nil || s.change != nil) {
			t.Errorf("%q is wrong and runs", line)
		}
		if s.change != nil && (s.change.Verb < job.Nack || s.change.Verb > job.Requeue || s.change.After < 0 || s.change.Attempt < 0) {
			t.Errorf("%q: %+v", line, s.change)
		}
		if answer := appendSettled(nil, []*settlement{s, s}); !json.Valid(answer) {
			t.Errorf("%q: %s", line, answer)
		}
	})
}

func settleLine(tb testing.TB) (ns *job.Namespace, line []byte) {
	ns, err := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	if err != nil {
		tb.Fatal(err)
	}
	return ns, []byte(`{"id":"` + ns.ID(0, "q", 1_763_629_675_123_456, "") + `","attempt":1,"do":"ack"}`)
}

func TestASettledLineAllocatesLittle(t *testing.T) {
	ns, line := settleLine(t)
	if n := testing.AllocsPerRun(100, func() { parseSettlement(ns, "q", line) }); n > 3 { // the line, its result, the ack
		t.Errorf("%v allocations", n)
	}
}

// FuzzQuery feeds query strings to a publish: what is accepted is within the bounds.
func FuzzQuery(f *testing.F) {
	ns, err := job.NewNamespace("sw", "mail", job.DefaultPolicy())
	if err != nil {
		f.Fatal(err)
	}
	for _, query := range []string{"delay=5s&ttl=1h&tries=3&id=a", "ttl=1ns", "tries=0x1", "delay=+5s", "shards=1000", "delay=1e3h", "ttl=9223372036854775807ns", "%00=%ff", "a&b=&=c"} {
		f.Add(query)
	}
	a := &api{Engine: &Engine{cfg: DefaultConfig()}}
	f.Fuzz(func(t *testing.T, query string) {
		ctx := &fasthttp.RequestCtx{}
		ctx.Request.SetRequestURI("/v1/mail/q?" + strings.ReplaceAll(query, "#", ""))
		c := &call{route: &routes[0], namespace: ns, queues: []string{"q"}}
		if c.parse(ctx.QueryArgs(), c.route.params) != nil {
			return
		}
		p, shards, rejected := a.options(c, nil)
		if rejected != nil {
			return
		}
		if p.Delay < 0 || p.Delay > job.MaxDelay || p.TTL < 0 || p.TTL > job.MaxTTL || p.Tries < 1 || p.Tries > job.MaxTries || shards < 0 || shards > job.MaxMessages ||
			p.CallerID != "" && !job.ValidCallerID(p.CallerID) || p.TTL > 0 && p.TTL <= p.Delay {
			t.Errorf("%q: %+v", query, p)
		}
	})
}
