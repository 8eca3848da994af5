package app

import (
	"bytes"
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/backend"
)

const canary = "correct-horse-battery"

// FuzzURLs checks that neither the errors nor the redacted form of a sink's or a
// store's URL show its password.
func FuzzURLs(f *testing.F) {
	for _, form := range []string{
		"https://u:%s@h/in", "http://h/%s?k=%s", "file:///x?max_size=%s", "file:///x?%s", "stdout:%s", "null:%s", "redis://:%s@h", "redis-sentinel://u:%s@a,b/m", "%s", "http:u:%s@h",
	} {
		f.Add(form)
	}
	for _, seed := range urlSeeds {
		f.Add(seed)
	}
	known := sinkRegistry()
	f.Fuzz(func(t *testing.T, form string) {
		// A slash too few or too many makes a user and password a path.
		for _, wrong := range []string{"https:/", "https:///", "https:", "redis:/", "redis:"} {
			raw := wrong + "u:" + canary + "@h/" + strings.ReplaceAll(form, "%s", "x")
			texts := []string{sink.Redact(raw), config.RedactStore(raw)}
			if s, err := known.New(raw); err == nil {
				_ = s.Close(context.Background())
			} else {
				texts = append(texts, err.Error())
			}
			if _, err := backend.Open(backend.Config{URL: raw}, prometheus.NewRegistry(), zap.NewNop()); err != nil {
				texts = append(texts, err.Error())
			}
			if shown := strings.Join(texts, "\n"); strings.Contains(shown, canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, shown)
			}
		}
		for _, raw := range []string{strings.ReplaceAll(form, "%s", canary), "https://u:" + canary + "@" + form, "redis://u:" + canary + "@" + form} {
			if s, err := known.New(raw); err == nil {
				_ = s.Close(context.Background())
			} else if strings.HasPrefix(raw, "https://u:"+canary) && strings.Contains(err.Error(), canary) {
				t.Fatalf("%q is rejected with %v", raw, err)
			}
			if strings.HasPrefix(raw, "redis://u:"+canary) && strings.Contains(config.RedactStore(raw), canary) && !strings.Contains(form, canary) {
				t.Fatalf("%q is shown as %q", raw, config.RedactStore(raw))
			}
		}
	})
}

// FuzzReportLine checks that readLines returns the lines of the input, and that
// each accepted line becomes one valid line for the mixed route.
func FuzzReportLine(f *testing.F) {
	for _, text := range []string{
		`{"partition":"kart-7","id":"a","ts":1763629675100,"offset_ms":40,"data":{"lap":4}}`, `{"partition":"p","data":1,"data":2}`, "\n\n{}\n", `{"partition":"a/b","data":1}`,
		`{"partition":"p","data":"\ud800"}`, `{"partition":"p","ts":1e3,"data":1}`, `{"\u0070artition":"p","data":null}`, "[]", "\xff", `{"partition":"p","id":"a b","data":1}`,
		`{"partition":"{p}","data":1}`, "\n\r\n \n{}\n", `{"partition":"\u0070","data":1}`, `{"partition":"p","id":"a\nb","data":1}`, "\x00\n",
		`{"partition":"p","data":` + strings.Repeat("[", 300) + strings.Repeat("]", 300) + "}",
	} {
		f.Add([]byte(text), false)
	}
	f.Add([]byte(`{"partition":"p","offset_ms":9223372036854775807,"data":1}`), true)
	f.Add([]byte(`{"partition":"kart-7","id":"a","ts":1763629675100,"offset_ms":40,"data":{"lap":4}}`), true)
	f.Fuzz(func(t *testing.T, text []byte, replay bool) {
		lines := make(chan line, bytes.Count(text, []byte("\n"))+1)
		if err := readLines(t.Context(), bytes.NewReader(text), lines); err != nil {
			t.Fatal(err)
		}
		close(lines)
		all := bytes.Split(text, []byte("\n"))
		for l := range lines {
			if !l.tooLong && !bytes.Equal(l.text, bytes.TrimSpace(all[l.number-1])) {
				t.Fatalf("line %d of %q is %q", l.number, text, l.text)
			}
			it, err := l.item(replay)
			if err != nil {
				continue
			}
			var got struct{ Partition string }
			if err := json.Unmarshal(it.encoded, &got); err != nil || bytes.IndexByte(it.encoded, '\n') != len(it.encoded)-1 || !partition.ValidPartition(got.Partition) {
				t.Fatalf("%q becomes %q, %v", l.text, it.encoded, err)
			}
		}
	})
}

func FuzzAsserts(f *testing.F) {
	for _, list := range []string{"p99<5ms,residual=0", "p99<5", "=", "p99<>5ms", "rate>=1e400", "lost!=NaN", ",,", "p99 < 5ms", "delivered==0x10", "p99<<5ms", "rate<=+Inf", "<5ms", " p99 < 5ms , , ", "requests=5ms"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		asserts, err := parseAsserts(list)
		if err != nil {
			return
		}
		for _, a := range asserts {
			if !slices.Contains(benchFigures, a.key) || a.op == "" || !strings.HasPrefix(a.text, a.key) {
				t.Fatalf("%q: got %+v", list, a)
			}
			if a.holds(a.want) != slices.Contains([]string{"<=", ">=", "=", "=="}, a.op) {
				t.Fatalf("%q: %+v compared with itself", list, a)
			}
		}
	})
}
