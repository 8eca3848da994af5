//go:build ui

package console

import (
	"fmt"
	"strings"
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

// A namespace of these cases has a capacity of 100, a max_age of 60 s and one sink.
func TestTheThreeQuestionsAreAnsweredInEachState(t *testing.T) {
	t.Parallel()
	page, _ := visit(t, chromium.Start(t), newFake(t).URL+"/", 1280, 900)
	for change, want := range map[string]string{
		``:                    `fine | No.`,
		`n.rates.evicted = 3`: `losing | Yes: 3 entries a second | kart: 3/s evicted | slowest sink https://s: p99 41 ms; 10/s come, 10/s are delivered; partitions are full: each keeps the newest 100 entries`,
		`n.rates.expired = 0.5; overview.workers.busy = 8`:                             `losing | Yes: 0.5 entries a second | kart: 0.5/s expired | slowest sink https://s: p99 41 ms; 10/s come, 10/s are delivered; all 8 workers are busy; entries wait longer than max_age, 1 min`,
		`n.rates.dead = 1; n.sinks[0].last_error = "422"`:                              `risk | Not now, but look below. | kart: 1/s dead-lettered | slowest sink https://s: p99 41 ms; the sink rejects entries for good, and dead letters are kept, lastly: 422`,
		`n.rates.dead = 1; n.rates.dead_letters_evicted = 2`:                           `losing | Yes: 2 entries a second | kart: 1/s dead-lettered and 2/s dropped as the oldest dead letters | slowest sink https://s: p99 41 ms; the sink rejects entries for good, and dead letters are kept; there are more dead letters than max_dead or max_dead_bytes keep`,
		`n.read_at_ms = 3_570_000; n.rates = { rejected: 0 }`:                          `risk | Not now, but look below. | kart: its Redis has not answered for 30 s, and these figures are old | slowest sink https://s: p99 41 ms`,
		`overview.store.degraded = ["store_full"]; overview.store.warnings = ["full"]`: `risk | Not now, but look below. | : Redis has no memory left: new entries and jobs are rejected, what is stored is still delivered | full`,
		`n.rates.lost = 1`: `losing | Yes: 1 entry a second | kart: 1/s lost | slowest sink https://s: p99 41 ms; something other than Spillway removes entries from Redis`,
		`n.paused = { since_ms: 0, by: "bob", reason: "new certificate" }`:      `risk | Not now, but look below. | kart: 7 entries wait while delivery is paused | delivery is paused since 1 h by bob: new certificate`,
		`n.paused = { since_ms: 0, by: "", reason: "" }; n.buffered = 0`:        `fine | No.`,
		`n.sinks[0].state = "tripped"; n.sinks[0].failing_since_ms = 3_420_000`: `risk | Not now, but look below. | kart: 7 entries wait for a sink that fails | sink https://s is left alone after failures since 3 min`,
		`n.oldest_age_ms = 50_000`:                                       `risk | Not now, but look below. | kart: the oldest entry is 50 s old and expires at 1 min | slowest sink https://s: p99 41 ms`,
		`n.rates.rejected = 2; n.rejected = { rate_limited: 2 }`:         `risk | Not now, but look below. | kart: 2/s rejected, and the senders told: rate_limited 2/s | slowest sink https://s: p99 41 ms`,
		`overview.store = { ready: false, error: "connection refused" }`: `losing | Yes, new entries are rejected | : nothing can be stored or delivered | the store is not available: connection refused`,
		`n.sinks = []; n.rates.evicted = 1; overview.workers = null`:     `losing | Yes: 1 entry a second | kart: 1/s evicted | 10/s come, 10/s are delivered; partitions are full: each keeps the newest 100 entries`,
	} {
		var got string
		err := page.Eval(fmt.Sprintf(`import("/console/diagnosis.js").then(({ diagnose }) => {
			const n = { namespace: "kart", capacity: 100, max_age_ms: 60_000, oldest_age_ms: 900, buffered: 7, paused: null, paused_partitions: 0, rejected: {},
				rates: { accepted: 10, delivered: 10, evicted: 0, expired: 0, dead: 0, lost: 0, rejected: 0 },
				sinks: [{ label: "https://s", state: "open", p99_ms: 41, last_error: "" }] };
			const overview = { now_ms: 3_600_000, store: { ready: true }, workers: { size: 8, busy: 3 } };
			%s;
			const { level, headline, findings } = diagnose(overview, [n]);
			return [level, headline, ...findings.flatMap((f) => [f.namespace + ": " + f.lost, f.why.join("; ")])].join(" | ");
		})`, change), &got)
		if err != nil || got != want {
			t.Errorf("%s:\n got %s, %v\nwant %s", change, got, err, want)
		}
	}
}

// Unknown is not zero.
func TestTilesAndTablesSayWhatIsNotKnown(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.namespaces[0]["rates"] = object{"rejected": 0}
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	shows(t, page, "account of all")
	for _, want := range []string{"accepted –/s none rejected", "delivered –/s not known", "dropped –/s not known"} {
		var tiles string
		if err := page.Eval(`[...document.querySelectorAll(".tile")].map((t) => [...t.children].slice(0, 3).map((c) => c.textContent.trim().replace(/\\s+/g, " ")).join(" ")).join("\n")`, &tiles); err != nil || !strings.Contains(tiles, want) {
			t.Errorf("want %q, %v, in\n%s", want, err, tiles)
		}
	}
	var row string
	if err := page.Eval(`document.querySelector("tr.selected, section[aria-label=Namespaces] tbody tr").innerText`, &row); err != nil || !strings.Contains(row, "not known") || strings.Contains(row, "ok") {
		t.Errorf("%q, %v", row, err)
	}
}
