package app

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// metricLabels are the names of all labels. Their values come from the code or from the
// configuration, never from a client. A partition is none of them but in the bounded
// list of the largest.
var metricLabels = []string{
	"namespace", "by", "pool", "outcome", "state", "reason", "result", "error", "class", "code", "route", "token", "fallback", "sink",
	"le", "quantile", "version", "revision", "go_version",
}

// scrape returns the text of /metrics.
func (a *testApp) scrape(t *testing.T) string {
	t.Helper()
	status, text := a.get(t, a.AdminListen, "/metrics")
	if status != http.StatusOK {
		t.Fatalf("/metrics answers %d: %s", status, text)
	}
	return text
}

var (
	sampleLine = regexp.MustCompile(`(?m)^([a-z_:]+)(?:\{([^}]*)\})? `)
	labelName  = regexp.MustCompile(`([a-zA-Z_]+)="`)
)

func TestMetricsOfARunningAppFollowTheConventions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := startApp(t, "--redis="+server.URL(), "--sink=null:")
	a.post(t, "/v1/default/kart", `{"lap":1}`)
	text := a.scrape(t)
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	families := map[string]bool{}
	for _, m := range sampleLine.FindAllStringSubmatch(text, -1) {
		families[m[1]] = true
		if own := strings.HasPrefix(m[1], "spillway_"); !own && !strings.HasPrefix(m[1], "go_") && !strings.HasPrefix(m[1], "process_") {
			t.Errorf("%s does not begin with spillway_", m[1])
		}
		for _, label := range labelName.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(metricLabels, label[1]) {
				t.Errorf("%s has the label %s, which is not one of %v", m[1], label[1], metricLabels)
			}
		}
	}
	for _, name := range []string{
		"spillway_ingest_request_seconds_bucket", "spillway_ingest_flush_seconds_bucket", "spillway_drain_lag_seconds_bucket",
		"spillway_drain_batch_entries_bucket", "spillway_drain_sink_failing", "spillway_account_entries_total",
	} {
		if !families[name] {
			t.Errorf("%s is missing; there are %v", name, slices.Sorted(maps.Keys(families)))
		}
	}
}

// series is what a scrape has, without the values.
func series(text string) map[string]bool {
	all := map[string]bool{}
	for line := range strings.Lines(text) {
		if name, _, ok := strings.Cut(line, " "); ok && !strings.HasPrefix(line, "#") {
			all[name] = true
		}
	}
	return all
}

// topSeries are those of the largest partitions: at most as many as the list is long.
var topSeries = regexp.MustCompile(`\{[^}]*partition="`)

func TestAScrapeCostsTheSameForTenAndTenThousandPartitions(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	a := startApp(t, "--redis="+server.URL(), "--role=ingest", "--max-age=1h")
	fill := func(from, to int) {
		t.Helper()
		ms, _ := a.current.Load().stores[config.DefaultPool].Now()
		var groups []*partition.Group
		for i := from; i < to; i++ {
			groups = append(groups, &partition.Group{
				Namespace: a.current.Load().store.Namespaces()[0], Partition: fmt.Sprint("p", i), Entries: [][]byte{partition.AppendEntry(nil, ms, nil, []byte("{}"))},
			})
		}
		a.current.Load().store.Produce(t.Context(), groups)
		for _, g := range groups {
			if g.Err != nil {
				t.Fatal(g.Err)
			}
		}
	}
	fill(0, 10)
	few := ""
	eventually(t, "ten partitions are counted", func() bool {
		few = a.scrape(t)
		return strings.Contains(few, `spillway_account_partitions{namespace="default"} 10`+"\n")
	})
	for from := 10; from < 10_000; from += 999 { // one answer that Redis has a busy machine's time for
		fill(from, from+999)
	}
	many := ""
	eventually(t, "ten thousand partitions are counted", func() bool {
		many = a.scrape(t)
		return strings.Contains(many, `spillway_account_partitions{namespace="default"} 10000`+"\n")
	})
	before, after := series(few), series(many)
	top := 0
	for name := range after {
		if topSeries.MatchString(name) {
			top++
		} else if !before[name] {
			t.Errorf("%s appears with more partitions", name)
		}
	}
	if top > 200 {
		t.Errorf("%d series have a partition", top)
	}
}

func TestTheLogHoldsNoCharacterThatDrivesATerminal(t *testing.T) {
	t.Parallel()
	const said = "a\u009b31m b\u202ec \u2066d\u200f\x7f e\U000e0001 größe 東京 \x1b[2J\nz"
	for _, format := range []string{"json", "console"} {
		var out bytes.Buffer
		newLogger(&out, "info", format).Info("line", zap.String("said", said))
		for _, r := range "\u009b\u202e\u2066\u200f\x7f\U000e0001\x1b" {
			if strings.ContainsRune(out.String(), r) {
				t.Errorf("%s: %q holds %U", format, out.String(), r)
			}
		}
		if !strings.Contains(out.String(), "größe 東京") || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s: %q", format, out.String())
		}
		object := out.String()[strings.IndexByte(out.String(), '{'):]
		var line struct{ Said string }
		if err := json.Unmarshal([]byte(object), &line); err != nil || line.Said != said {
			t.Errorf("%s: reads as %q, %v", format, line.Said, err)
		}
	}
}
