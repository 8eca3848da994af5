package ingest

import (
	"strings"
	"testing"
)

func TestABodyThatIsProbablyAMistakeIsStoredWithAWarning(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), nil)
	const compressed, batched = "0:warning/looks_compressed", "0:warning/looks_batched"
	for _, row := range []struct{ name, body, kind, want string }{
		{"gzip without its header", gzipped(t, "lap 3"), "text/plain", compressed},
		{"zstd without its header", zstded(t, "lap 3"), "", compressed},
		{"gzip as NDJSON", gzipped(t, "{}\n{}"), "application/x-ndjson", compressed},
		{"NDJSON as text", "{\"a\":1}\n{\"a\":2}\n", "text/plain", batched},
		{"NDJSON with CR LF", "\r\n{\"a\":1}\r\n[2]\r\n", "application/octet-stream", batched},
		{"NDJSON that ends badly", "{\"a\":1}\n{\"a\":2}\n{", "", batched},

		{"one object", `{"a":1}`, "text/plain", ""},
		{"one object and a line feed", "{\"a\":1}\n", "text/plain", ""},
		{"an object over two lines", "{\"a\":\n1}", "text/plain", ""},
		{"an object as JSON", "{\"a\":\n1}", "application/json", ""},
		{"a list as text", "[1,2]", "text/plain", ""},
		{"numbers", "1\n2\n", "text/plain", ""},
		{"an object and text", "{\"a\":1}\nlap", "text/plain", ""},
		{"text and an object", "lap\n{\"a\":1}\n{}", "text/plain", ""},
		{"half a magic number", "\x1f\x8b", "text/plain", ""},
		{"NDJSON", "{\"a\":1}\n{\"a\":2}\n", "application/x-ndjson", ""},
		{"a JSON string that has lines", `"{}\n{}"`, "application/json", ""},
	} {
		r := p.post("/v1/default/p", row.body, "Content-Type: "+row.kind)
		if r.status != 200 || r.body.Rejected != 0 || r.results() != row.want {
			t.Errorf("%s: got %d %s, want %q", row.name, r.status, r.raw, row.want)
		}
	}
	minimal := p.post("/v1/default/p", "{}\n{}", "Prefer: return=minimal")
	if minimal.status != 200 || minimal.results() != batched {
		t.Errorf("with return=minimal: got %d %s", minimal.status, minimal.raw)
	}
	twice := p.post("/v1/default/p", gzipped(t, gzipped(t, "x")), "Content-Encoding: gzip")
	if twice.results() != compressed {
		t.Errorf("compressed twice: got %s", twice.raw)
	}
	p.beacon("/beacon/default/p", gzipped(t, "x"))
	eventually(t, func() bool { return p.metric("suspected_mistakes_total", "default", "looks_compressed") == 5 })
	if got := p.metric("suspected_mistakes_total", "default", "looks_batched"); got != 4 {
		t.Errorf("%v looked batched, want 4", got)
	}
}

func TestAnEntryHasOneResult(t *testing.T) {
	t.Parallel()
	p := listen(t, newFake(), func(c *Config) { c.MaxEntry = 16 })
	const old = "X-Event-Ts: 1"
	if r := p.post("/v1/default/p", "{}\n{}", old); r.results() != "0:warning/unskewed" {
		t.Errorf("got %s", r.raw)
	}
	body := "\x1f\x8b\x08" + strings.Repeat("x", 20)
	if r := p.post("/v1/default/p", body+"\n1", asNDJSON); r.results() != "0:drop/too_large" {
		t.Errorf("got %s", r.raw)
	}
	if r := p.post("/v1/default/p", "\x1f\x8b\x08\n"+body, asNDJSON); r.results() != "0:warning/looks_compressed 1:drop/too_large" {
		t.Errorf("got %s", r.raw)
	}
}
