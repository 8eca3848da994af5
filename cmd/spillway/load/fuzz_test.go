package load

import (
	"bytes"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/partition"
)

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
