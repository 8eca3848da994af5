//go:build ui

package console

import (
	"fmt"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

func TestFiguresAreWrittenForPeople(t *testing.T) {
	t.Parallel()
	page, _ := visit(t, chromium.Start(t), newFake(t).URL+"/", 1280, 900)
	for expression, want := range map[string]string{
		`duration(null)`: "–", `duration(0)`: "0 ms", `duration(850)`: "850 ms", `duration(9950)`: "9.9 s", `duration(59_999)`: "59 s",
		`duration(60_000)`: "1 min", `duration(184_000)`: "3 min 4 s", `duration(7_500_000)`: "2 h 5 min", `duration(90_000_000)`: "1 d 1 h", `duration(-5)`: "0 ms",
		`rate(0)`: "0", `rate(0.004)`: "< 0.1", `rate(12.34)`: "12.3", `rate(1204.5)`: "1,205", `rate(2_500_000)`: "2.5 M", `rate(null)`: "–",
		`short(399_120)`: "399,120", `short(12_300_000)`: "12.3 M", `short(2.5)`: "2.5", `count(9_876_543)`: "9,876,543",
		`latency(0.42)`: "0.42 ms", `latency(1500)`: "1.5 s", `percent(0.005)`: "< 1 %", `percent(1)`: "100 %", `percent(0.999)`: "99 %", `percent(null)`: "–",
		`bytes(31)`: "31 B", `bytes(4096)`: "4 KiB", `entries(1)`: "1 entry", `entries(2)`: "2 entries", `listed(["a"])`: "a", `listed(["a","b","c"])`: "a, b and c",
		`visible("a\u0000b\u001b[0m\u2066c\ufeff\n\td\ud800")`: "a⟨U+0000⟩b⟨U+001B⟩[0m⟨U+2066⟩c⟨U+FEFF⟩\n\td⟨U+D800⟩", `visible(null)`: "", `visible("Müller 日本 🎮")`: "Müller 日本 🎮",
	} {
		var got string
		if err := page.Eval(fmt.Sprintf(`import("/console/format.js").then((m) => { const { duration, rate, short, count, latency, percent, bytes, entries, listed, visible } = m; return %s; })`, expression), &got); err != nil || got != want {
			t.Errorf("%s: got %q, %v; want %q", expression, got, err, want)
		}
	}
}
