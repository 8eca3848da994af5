package elasticsearch

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Whatever a host answers, only entries of the Write are named, each once.
func FuzzVerdicts(f *testing.F) {
	for _, seed := range []string{
		`{"errors":false}`, `{"errors":true,"items":[{"create":{"status":201}},{"create":{"status":409}},{"create":{"status":400,"error":{"type":"a","reason":"b"}}}]}`,
		`{"errors":true,"items":[{},[],null]}`, `{"errors":true,"errors":false}`, `{"errors":true,"items":[{"create":{"status":"400","error":"text"}},1,2]}`, "[", "",
	} {
		f.Add([]byte(seed))
	}
	at := []position{{0, 0}, {0, 1}, {1, 0}}
	f.Fuzz(func(t *testing.T, answer []byte) {
		failed, err := verdicts(answer, 1<<20, at)
		if failed == nil {
			return
		}
		if err != nil || len(failed.Failed) == 0 || len(failed.Failed) > len(at) {
			t.Fatalf("got %v, %v", failed, err)
		}
		next := 0
		for _, e := range failed.Failed {
			for next < len(at) && at[next] != (position{e.Batch, e.Entry}) {
				next++
			}
			if next++; next > len(at) || e.Err == nil || len(e.Err.Error()) > 200 {
				t.Fatalf("got %+v", e)
			}
		}
	})
}

// Whatever a client sends, a document is one line of JSON and each name is there once.
func FuzzPayload(f *testing.F) {
	for _, seed := range []string{`{"a":1}`, `{"a":1,"\u0061":2}`, "{\n\"a\":[{}]\r}", "[1]", "text\u2028", "\xff", `{"":{"":{}}}`, `{"\ud800":1,"\ud801":2}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		line := append(appendPayload([]byte(`{"seq":1`), payload), '}')
		if bytes.ContainsAny(line, "\r\n") || !json.Valid(line) {
			t.Fatalf("%q became %q", payload, line)
		}
		x := index{fields: map[string]string{}}
		if err := x.parse(line, map[string]string{}); err != nil && bytes.Contains([]byte(err.Error()), []byte("duplicate")) {
			t.Fatalf("%q became %q: %v", payload, line, err)
		}
	})
}
