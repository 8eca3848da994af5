//go:build ui

package console

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
	"github.com/spillway-io/spillway/lua/redistest"
)

// On a phone nobody finds what lies a scroll to the right, or below.
func TestAPhoneReachesEveryActionAndSeesWhatItOpens(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withQueues("welcome")
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 400, 900)
	shows(t, page, "kart-3")
	until(t, page, "the selector has every namespace", `[...document.querySelector("header select").options].map((o) => o.text).join() === "all 3,game,mail,sms"`)
	for _, label := range []string{"Pause game", "Purge game", "Peek into kart-3", "Purge kart-3"} {
		until(t, page, label+" is in the window", fmt.Sprintf(`(() => { const b = document.querySelector('[aria-label^=%q]')?.getBoundingClientRect(); return b && b.left >= 0 && b.right <= innerWidth && b.height >= 24; })()`, label))
	}
	picture(t, page, "phone", 400, 900)
	click(t, page, "sms")
	until(t, page, "the queues of sms are in sight", `(() => { const b = document.getElementById("queues-of")?.getBoundingClientRect(); return b?.top >= 0 && b.top < innerHeight / 2 && document.getElementById("queues-of").innerText.includes("sms"); })()`)
	picture(t, page, "phone-queues", 400, 900)
	until(t, page, "the queue's action is in the window", `document.querySelector('[aria-label^="Purge queue welcome"]')?.getBoundingClientRect().right <= innerWidth`)
	enter(t, page, "Namespace", "mail")
	until(t, page, "the queues of mail are shown", `document.getElementById("queues-of").innerText.includes("mail")`)
}

// With -args -shots FOLDER the first two pictures are those of the README:
// deploy/console.png and deploy/console-narrow.png.
func TestThePageFitsBothWidths(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.inTrouble()
	browser := chromium.Start(t)
	for _, shot := range []struct {
		name, scheme  string
		width, height int
	}{{"console", "dark", 1280, 1180}, {"console-narrow", "light", 400, 900}, {"whole", "light", 1280, 2000}, {"whole-narrow", "dark", 400, 2900}} {
		page, _ := visit(t, browser, f.URL+"/", shot.width, shot.height)
		if err := page.Prefer(shot.scheme); err != nil {
			t.Fatal(err)
		}
		shows(t, page, "kart-3")
		until(t, page, "charts are drawn", `document.querySelectorAll("canvas").length === 2`)
		until(t, page, "nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth`)
		picture(t, page, shot.name, shot.width, shot.height)
	}
}

func TestTheChartsShowTheLastMinutesOrADay(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	shows(t, page, "Rates, entries/s, last 15 minutes")
	shows(t, page, "rejected")
	if err := page.Eval(`[...document.querySelectorAll(".charts button")].find((b) => b.innerText === "24 h").click()`, nil); err != nil {
		t.Fatal(err)
	}
	shows(t, page, "Rates, entries/s, last 24 hours")
	until(t, page, "the day is drawn", `document.querySelectorAll(".charts canvas").length === 2 && /accepted [\d.]+/.test(document.querySelector(".plot[aria-label^='Rates']").ariaLabel)`)
}

// fill puts one entry into each of n partitions, p-0 to p-(n-1).
func (s *spillway) fill(n int) {
	s.t.Helper()
	const atOnce = 1000
	for first := 0; first < n; first += atOnce {
		var body strings.Builder
		for i := range atOnce {
			fmt.Fprintf(&body, "{\"partition\":\"p-%d\",\"data\":{\"lap\":1}}\n", first+i)
		}
		resp, err := http.Post(s.data+"/v1/kart", "application/x-ndjson", strings.NewReader(body.String()))
		if err != nil {
			s.t.Fatal(err)
		}
		said, _ := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			s.t.Fatalf("answered %d: %.200s", resp.StatusCode, said)
		}
	}
}

// The promise is 2 s on an idle machine; the bounds leave room for busy ones.
func TestAHundredThousandPartitionsAreInteractiveSoon(t *testing.T) {
	s := serve(t, "max_age: 1h", "--role=ingest", "--redis=redis://"+redistest.Start(t).Addr)
	s.fill(100_000)
	page, _ := visit(t, chromium.Start(t), "about:blank", 1280, 1400)
	for _, visited := range []string{"first", "second"} {
		began := time.Now()
		if err := page.Go(s.console("viewer")); err != nil {
			t.Fatal(err)
		}
		until(t, page, "rows are shown", row("p-"))
		rows := time.Since(began)
		began = time.Now()
		click(t, page, "partition")
		until(t, page, "another order is shown", `[...document.querySelectorAll(".partitions tbody th")].map((th) => th.innerText).join(" ").startsWith("p-0 p-1 p-10 p-100 p-1000 ")`)
		t.Logf("%s visit: rows after %v, another order after %v", visited, rows, time.Since(began))
		if rows > 10*time.Second {
			t.Errorf("rows after %v", rows)
		}
		until(t, page, "the sweep knows all of them", `document.querySelector("tfoot")?.innerText.startsWith("100,000 partitions")`)
		t.Logf("all are known %v after the page", time.Since(began)+rows)
	}
	if err := page.Eval(`document.querySelector(".rows").scrollTop = 1e9`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the last row is shown", row("p-99999"))
	enter(t, page, "Filter", "p-4242")
	shows(t, page, "11 partitions")
	var figures struct{ Rows, Bytes int }
	err := page.Eval(`({ rows: document.querySelectorAll(".partitions tbody tr").length, bytes: performance.memory?.usedJSHeapSize ?? 0 })`, &figures)
	if err != nil || figures.Rows > 80 {
		t.Errorf("got %+v, %v", figures, err)
	}
	t.Logf("the page's heap: %d kB", figures.Bytes/1000)
}

// axe is the text of axe-core, which npm installs into a temporary folder.
func axe(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS("testdata")); err != nil {
		t.Fatal(err)
	}
	npm := exec.Command("npm", "install", "--no-audit", "--no-fund", "--ignore-scripts")
	npm.Dir = dir
	if out, err := npm.CombinedOutput(); err != nil {
		t.Fatalf("npm install: %v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "node_modules/axe-core/axe.min.js"))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// check runs axe on what the page shows now.
func check(t *testing.T, page *chromium.Page, when string) {
	t.Helper()
	var violations []struct {
		ID, Help string
		Nodes    []struct {
			HTML           string
			FailureSummary string
		}
	}
	if err := page.Eval(`axe.run(document, { resultTypes: ["violations"] }).then((r) => r.violations)`, &violations); err != nil {
		t.Fatal(err)
	}
	for _, v := range violations {
		for _, node := range v.Nodes[:min(3, len(v.Nodes))] {
			t.Errorf("%s: %s: %s\n%.300s\n%s", when, v.ID, v.Help, node.HTML, node.FailureSummary)
		}
	}
}

func TestAxeFindsNothingInEitherThemeAtEitherWidth(t *testing.T) {
	t.Parallel()
	script := axe(t)
	browser := chromium.Start(t)
	now := time.Now().UnixMilli()
	f := newFake(t)
	f.inTrouble()
	f.namespaces[1]["paused"] = object{"since_ms": now - 60_000, "by": "bob", "reason": "new certificate"}
	f.peek = []object{{"seq": 1, "id": "a-1", "occurred_at_ms": now, "age_ms": 1, "bytes": 9, "data": object{"lap": 3}}}
	f.drops = []object{{"at_ms": now, "namespace": "kart", "partition": "kart-7", "id": "a-1", "reason": "evicted", "entries": 1, "age_ms": 2000}}
	f.dead = []object{{"letter": "0123456789abcdef", "partition": "kart-7", "id": "a-2", "dead_at_ms": now, "reason": "4xx", "detail": "422 no such lap", "attempt": 1, "bytes": 9}}
	f.causes = []object{{"cause": "# no such lap", "count": 12}}
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int{1280, 400} {
			page, _ := visit(t, browser, f.URL+"/", width, 900)
			if err := page.Prefer(scheme); err != nil {
				t.Fatal(err)
			}
			shows(t, page, "kart-3")
			until(t, page, "charts are drawn", `document.querySelectorAll("canvas").length === 2`)
			if err := page.Eval(script+";0", nil); err != nil {
				t.Fatal(err)
			}
			when := fmt.Sprintf("%s, %d px", scheme, width)
			check(t, page, when)
			picture(t, page, fmt.Sprintf("%s-%d", scheme, width), width, map[int]int{1280: 1500, 400: 2600}[width])
			click(t, page, "kart-3")
			shows(t, page, "Looking takes nothing away.")
			for _, tab := range []string{"Drops", "Dead letters"} {
				click(t, page, tab)
				until(t, page, tab+" has entries", `document.querySelector(".drawer .entry .meta")`)
				check(t, page, when+", "+tab)
			}
			picture(t, page, fmt.Sprintf("%s-%d-dead", scheme, width), width, 900)
			click(t, page, "delete")
			shows(t, page, "Type 12 to confirm")
			check(t, page, when+", dialog")
			picture(t, page, fmt.Sprintf("%s-%d-dialog", scheme, width), width, 900)
		}
	}
}

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

func TestDeadLettersOpenWhereTheyAre(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.namespaces = []object{calm("game"), failing("kart", time.Now().UnixMilli())}
	f.namespaces[0]["dead_letters"], f.namespaces[1]["dead_letters"] = 2, 300
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	click(t, page, "Dead letters")
	until(t, page, "that with most is open, and the other is named", fmt.Sprintf(`((d) => d?.querySelector("select").value === %q && d.innerText.includes("Elsewhere: %v 2"))(document.querySelector(".drawer"))`,
		f.namespaces[1]["namespace"], f.namespaces[0]["namespace"]))
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
