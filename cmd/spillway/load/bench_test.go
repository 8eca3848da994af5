package load

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

var update = flag.Bool("update", false, "rewrite the golden file")

func TestAssertionsCompareNumbersAndDurations(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		list string
		got  float64
		hold bool
	}{
		{"p99<5ms", 0.0049, true}, {"p99<5ms", 0.005, false}, {"p99<=5ms", 0.005, true}, {" p99.9 > 1s ", 2, true},
		{"residual=0", 0, true}, {"residual==0", 1, false}, {"rate>=1e4", 9999, false}, {"errors!=0", 1, true}, {"max<0", 0, false},
	} {
		list, err := parseAsserts(tt.list)
		if err != nil || len(list) != 1 {
			t.Errorf("%s: got %v, %v", tt.list, list, err)
			continue
		}
		if got := list[0].holds(tt.got); got != tt.hold {
			t.Errorf("%s with %v: got %v", tt.list, tt.got, got)
		}
	}
	for _, broken := range []string{"p99", "p99<", "p99<5", "p98<5ms", "residual=0ms", "p99=<5ms", "p99<5ms,x", "<5ms"} {
		if list, err := parseAsserts(broken); err == nil {
			t.Errorf("%q: got %v, want an error", broken, list)
		}
	}
	if list, err := parseAsserts("p99<5ms, residual=0,"); err != nil || len(list) != 2 {
		t.Errorf("a list: got %v, %v; want two", list, err)
	}
}

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
