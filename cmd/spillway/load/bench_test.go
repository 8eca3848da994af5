package load

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestBenchPrintsUnitsAndRejectionsByCode(t *testing.T) {
	t.Parallel()
	c := Bench{Mode: "ingest", Output: "text"}
	figures := map[string]float64{"requests": 12345, "acked": 12300, "errors": 45, "unknown": 2, "rejected": 43, "rate": 1234.5678, "p50": 0.000412, "p99": 0.0123456, "p99.9": 1.5, "max": 61}
	var b strings.Builder
	if err := c.print(&b, figures, map[string]int64{"rate_limited": 40, "overdue": 3}); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "bench.golden")
	if *update {
		if err := os.WriteFile(path, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if want, err := os.ReadFile(path); err != nil || b.String() != string(want) {
		t.Errorf("%v, got\n%swant\n%s", err, b.String(), want)
	}
}

func TestDemoMarksTheEventOfAPerson(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	h := demoHighlighter{&out}
	lines := "{\"namespace\":\"default\",\"partition\":\"kart.eu-1\",\"seq\":1}\n{\"namespace\":\"default\",\"partition\":\"my-game\",\"seq\":1}\n"
	if n, err := h.Write([]byte(lines)); n != len(lines) || err != nil {
		t.Errorf("got %d, %v", n, err)
	}
	if got := strings.Split(out.String(), "\n"); len(got) != 3 || strings.Contains(got[0], "your event") || !strings.HasSuffix(got[1], "◀ your event") {
		t.Errorf("got %q", got)
	}
}

func TestDemoUsesAFreePortWhenTheDefaultIsInUse(t *testing.T) {
	t.Parallel()
	used, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer used.Close()
	address := used.Addr().String()
	var stderr strings.Builder
	if got := portOrFree(address, &stderr); got != "127.0.0.1:0" || !strings.Contains(stderr.String(), address+" is in use") {
		t.Errorf("got %s, %s", got, stderr.String())
	}
	free := redistest.FreeAddr(t)
	if got := portOrFree(free, io.Discard); got != free {
		t.Errorf("got %s, want %s", got, free)
	}
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
