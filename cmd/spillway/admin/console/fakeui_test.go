//go:build ui

package console

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// locked reads or sets what the fake's handlers also use.
func locked[T any](f *fake, read func() T) T {
	f.mu.Lock()
	defer f.mu.Unlock()
	return read()
}

func TestTheBannerAnswersTheThreeQuestions(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.namespaces = []object{calm("game"), failing("kart", time.Now().UnixMilli())}
	f.findings = losing("kart")
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	for _, want := range []string{
		"Data is being lost or rejected.", "kart: 11,534 entries were evicted within 2m5s", "Peek into kart-7",
		"fails for 3m15s: 503 Service Unavailable: upstream connect error", "repair or widen the sink, or raise capacity: spillway ls kart --sort evicted", "6 rate_limited, 1 too_large",
	} {
		shows(t, page, want)
	}
	until(t, page, "what is in trouble is first", `document.querySelector("tbody th").innerText === "kart"`)
	click(t, page, "Peek into kart-7")
	shows(t, page, "Looking takes nothing away.")
}

// From which share on something is near its limit says the server.
func TestAPartitionIsColouredByTheServersThresholds(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.partition = func(i int) object {
		p := calmPartition(i)
		p["fill"], p["oldest_age_ms"] = []float64{0.89, 0.9, 1}[i%3], []int{107_000, 108_000, 180_000}[i%3] // of 180 s
		return p
	}
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	for _, kind := range []string{"", ".warn-text", ".bad-text"} {
		until(t, page, "there are cells like n"+kind, `["2", "3"].every((n) => document.querySelector(".partitions tbody td:nth-of-type(" + n + ").n`+kind+`"))`)
	}
	until(t, page, "a third of them", `(() => { const cells = [...document.querySelectorAll(".partitions tbody td:nth-of-type(2)")];
		return cells.every((c) => c.className === { "89 %": "n", "90 %": "n warn-text", "100 %": "n bad-text" }[c.innerText]); })()`)
}

func TestCalmIsSaidInOneLine(t *testing.T) {
	t.Parallel()
	page, _ := visit(t, chromium.Start(t), newFake(t).URL+"/", 1280, 900)
	until(t, page, "the banner says no", `document.querySelector(".banner.ok").innerText.trim() === "Is data being lost?\nNo data is being lost."`)
}

// Names, ids and payloads are whatever a stranger sent.
func TestTextsOfStrangersAreOnlyTexts(t *testing.T) {
	t.Parallel()
	const attack = `<img src=x onerror="window.pwned=1"><script>window.pwned=2</script>`
	const bidi = "live\u202egnp.exe\u200b"
	f := newFake(t)
	hostile := failing(attack, time.Now().UnixMilli())
	hostile["paused"] = object{"since_ms": time.Now().UnixMilli() - 5000, "by": attack + bidi, "reason": bidi + attack}
	hostile["sinks"].([]object)[0]["label"] = attack + bidi
	hostile["sinks"].([]object)[0]["last_error"] = bidi + attack
	hostile["paused_partitions"] = 1
	f.pauses = []object{{"namespace": attack, "partition": bidi, "since_ms": 1, "by": attack, "reason": bidi}}
	f.namespaces = []object{hostile}
	f.findings = []object{{"level": "loss", "namespace": attack, "partition": bidi, "what": attack + bidi, "why": bidi + attack, "do": attack, "command": attack + bidi}}
	f.partition = func(i int) object {
		p := calmPartition(i)
		p["partition"], p["last_error"] = fmt.Sprint(attack, bidi, i), attack+bidi
		return p
	}
	long := strings.Repeat("x", 40<<10)
	f.peek = []object{
		{"seq": 1, "id": attack + bidi, "occurred_at_ms": 1, "age_ms": 1, "bytes": 9, "data": object{attack: bidi, "big": json.RawMessage("12345678901234567890")}},
		{"seq": 2, "occurred_at_ms": 1, "age_ms": 1, "bytes": 9, "text": attack + bidi + long, "cut": true},
		{"seq": 3, "occurred_at_ms": 1, "age_ms": 1, "bytes": 9, "base64": "//79"},
	}
	f.drops = []object{{"at_ms": 1, "namespace": attack, "partition": bidi, "id": attack, "reason": attack + bidi, "entries": 1, "detail": attack}}
	f.dead = []object{{"letter": "0123456789abcdef", "partition": attack, "id": bidi, "dead_at_ms": 1, "reason": attack, "detail": bidi, "attempt": 1, "bytes": 9}}
	f.reject = object{"error": "conflict", "message": attack + bidi}
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	const said = `live⟨U+202E⟩gnp.exe⟨U+200B⟩`
	until(t, page, "the table has rows", `document.querySelectorAll(".partitions tbody tr").length > 10`)
	if err := page.Eval(`document.querySelector(".partitions tbody button").click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the drawer has payloads", `document.querySelectorAll(".drawer .payload").length === 3`)
	shows(t, page, "12345678901234567890")
	shows(t, page, "… (cut)")
	for _, tab := range []string{"Drops", "Dead letters", "Audit", "Live tail"} {
		click(t, page, tab)
		until(t, page, tab+" is shown", fmt.Sprintf(`document.querySelector('[aria-selected="true"]').innerText === %q`, tab))
		if tab == "Drops" || tab == "Dead letters" {
			until(t, page, tab+" has an entry", `document.querySelector(".drawer .entry")?.innerText.includes("<img src=x")`)
		}
	}
	var found struct {
		Pwned, Images, Scripts, Raw int
		Said                        bool
	}
	err := page.Eval(`({ pwned: window.pwned ?? 0, images: document.images.length, scripts: document.querySelectorAll("body script").length,
		raw: (document.body.innerText.match(/[\u202e\u200b]/g) ?? []).length, said: document.body.innerText.includes("`+said+`") })`, &found)
	if err != nil || found.Pwned != 0 || found.Images != 0 || found.Scripts != 0 || found.Raw != 0 || !found.Said {
		t.Errorf("got %+v, %v; want nothing made of the texts, and what is unseen written out", found, err)
	}
}

func TestAnActOfAHigherRoleIsRejectedInWords(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.role = "viewer"
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	const why = "this needs the role admin; yours is viewer"
	click(t, page, "Purge kart-0 ("+why+")")
	shows(t, page, why)
	click(t, page, "Pause game (this needs the role operator; yours is viewer)")
	click(t, page, "kart-3")
	shows(t, page, "this needs the role operator; yours is viewer")
	if writes := locked(f, func() []object { return f.writes }); len(writes) > 0 {
		t.Errorf("the page wrote %v", writes)
	}
	if peeks := locked(f, func() int { return f.asked["namespaces/game/partitions/kart-3/peek"] }); peeks > 0 {
		t.Errorf("the page asked for what its reader may not see")
	}
}

func TestAPurgeTakesTheExactCount(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	click(t, page, "Purge kart-0")
	shows(t, page, "1,234 entries of 3 partitions match; 1 partition is being delivered and left alone.")
	enter(t, page, "Type 1234 to confirm", "1233")
	until(t, page, "the button is locked", `document.querySelector("dialog [type=submit]").disabled`)
	enter(t, page, "Older than", "90")
	until(t, page, "another selection takes another count", `document.querySelector("dialog .typed input").value === ""`)
	enter(t, page, "Type 1234 to confirm", "1,234")
	locked(f, func() any {
		f.reject = object{"error": "conflict", "message": "the store says no"}
		return nil
	})
	click(t, page, "Purge 1,234")
	shows(t, page, "the store says no")
	locked(f, func() any { f.reject = nil; return nil })
	click(t, page, "Purge 1,234")
	shows(t, page, "1,234 entries purged of partition kart-0 of game")
	until(t, page, "the dialog is closed", `!document.querySelector("dialog")`)
	last := locked(f, func() object { return f.writes[len(f.writes)-1] })
	got, _ := json.Marshal(last)
	if want := `{"confirm":1234,"older_than":"90s","partition":"kart-0","path":"namespaces/game/purge"}`; string(got) != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// A tab in the background of somebody's browser must not keep the sweep alive.
func TestAHiddenPageAsksNothing(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	overviews := func() int { return locked(f, func() int { return f.asked["overview"] }) }
	for overviews() < 3 {
		until(t, page, "it is visible", `document.visibilityState === "visible"`)
	}
	if err := page.Cover(); err != nil {
		t.Fatal(err)
	}
	until(t, page, "it is hidden", "document.hidden")
	before := overviews()
	if err := page.Eval("new Promise((done) => setTimeout(done, 3500))", nil); err != nil {
		t.Fatal(err)
	}
	if after := overviews(); after > before+1 { // one may have been on its way
		t.Errorf("%d overviews were asked for while nobody looked", after-before)
	}
}

func TestAServerThatIsAwayIsSaidAndComesBack(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	page, _ := visit(t, chromium.Start(t), f.URL+"/#namespace=gone", 1280, 900)
	shows(t, page, "there is no namespace gone (any more): these are all")
	shows(t, page, "kart-0")
	locked(f, func() any { f.down = true; return nil })
	shows(t, page, "the store does not answer")
	until(t, page, "the figures fade", `document.querySelector("main.stale")`)
	locked(f, func() any { f.down = false; return nil })
	until(t, page, "they are back", `!document.querySelector("main.stale") && !document.body.innerText.includes("no news since")`)
}

func TestUpdatesPauseAndGoOn(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	shows(t, page, "kart-0")
	pace := func(text string) {
		if err := page.Eval(fmt.Sprintf(`[...document.querySelectorAll("[name=pace]")].find((i) => i.parentNode.innerText === %q).click()`, text), nil); err != nil {
			t.Fatal(err)
		}
	}
	pace("pause")
	before := locked(f, func() int { return f.asked["overview"] })
	if err := page.Eval("new Promise((done) => setTimeout(done, 2500))", nil); err != nil {
		t.Fatal(err)
	}
	if after := locked(f, func() int { return f.asked["overview"] }); after > before+1 {
		t.Errorf("paused, it asked %d times", after-before)
	}
	pace("1 s")
	for locked(f, func() int { return f.asked["overview"] }) < before+3 {
		until(t, page, "a second passes", `new Promise((done) => setTimeout(() => done(true), 1000))`)
	}
}

func TestTheKeyboardIsEnough(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	shows(t, page, "kart-0")
	press := func(keys ...string) {
		for _, key := range keys {
			if err := page.Press(key); err != nil {
				t.Fatal(err)
			}
		}
	}
	press("Tab", "Enter") // the first thing on the page
	until(t, page, "the drawer is open and has the focus", `document.activeElement.getAttribute("aria-label") === "Drops"`)
	press("Tab")
	until(t, page, "the tab has the focus", `document.activeElement.id === "tab-drops"`)
	press("ArrowRight")
	until(t, page, "the arrow shows the next tab", `document.activeElement.id === "tab-audit" && document.querySelector(".drawer").innerText.includes("new certificate")`)
	press("Escape")
	until(t, page, "the drawer is closed, and the focus where it was", `!document.querySelector(".drawer") && document.activeElement.innerText === "Why was my event dropped?"`)
	if err := page.Eval(`document.querySelector('[aria-label="Purge kart-0"]').focus()`, nil); err != nil {
		t.Fatal(err)
	}
	press("Enter")
	until(t, page, "the dialog asks", `document.querySelector("dialog .typed")`)
	press("Escape")
	until(t, page, "the dialog is gone, and the focus where it was", `!document.querySelector("dialog") && document.activeElement.ariaLabel === "Purge kart-0"`)
}

func TestAHundredThousandPartitionsCostNoMoreThanThoseInSight(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.partitions = 100_000
	began := time.Now()
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	shows(t, page, "100,000 partitions")
	took := time.Since(began)
	t.Logf("the page with its browser: %v", took)
	if err := page.Eval(`document.querySelector(".rows").scrollTop = 1e9`, nil); err != nil {
		t.Fatal(err)
	}
	shows(t, page, "kart-99999")
	var rows int
	if err := page.Eval(`document.querySelectorAll(".partitions tbody tr").length`, &rows); err != nil || rows > 80 {
		t.Errorf("the page holds %d rows, %v", rows, err)
	}
}
