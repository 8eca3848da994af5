//go:build ui

package console

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// withPHP gives the fake a namespace of PHP's queues, with workers and dead letters by cause.
func (f *fake) withPHP(worker, class string) {
	f.withQueues("default")
	shop := mail("shop")
	shop["kind"], shop["max_jobs"] = "php", 0
	shop["ledger"] = object{"published": 40, "acked": 30, "expired": 0, "deleted": 0, "lost": 0, "dead": 12, "ready": 70, "delayed": 30, "leased": 8, "died": 13, "respawned": 1}
	f.queues[0]["kind"], f.queues[1]["kind"] = "queue", "queue"
	f.queues = append(f.queues, shop)
	f.rows[0]["reserved"] = 3
	f.jobs[0]["class"], f.jobs[0]["reason"] = class, "nacked"
	f.causes = []object{{"cause": class + ": buried", "count": 9}, {"cause": "", "count": 3}}
	now := time.Now().UnixMilli()
	f.workers = []object{
		{"name": worker, "children": 4, "busy": 3, "memory": 128 << 20, "version": "1.4.0", "queues": []string{"default", "mail"}, "token": "workers", "seen_ms": now - 800, "since_ms": now - 3_600_000},
		{"name": "web2-77", "children": 2, "busy": 0, "memory": 61 << 20, "version": "1.4.0", "queues": []string{"default"}, "token": "workers", "seen_ms": now - 20_000, "since_ms": now - 86_400_000},
	}
}

func TestAnOperatorRestartsTheWorkersOfPHPAndCopiesTheCommand(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.role = "operator"
	f.withPHP("web1-4711", `App\Jobs\Mail`)
	page, _ := visit(t, chromium.Start(t), f.URL+"/#jobs=shop&view=workers", 1280, 900)
	shows(t, page, "2, with 6 children, 3 of them busy")
	until(t, page, "the worker has its row", `["web1-4711", "4", "3", "128 MiB", "1.4.0"].every((text, i) => document.querySelector(".queue-workers tbody tr").cells[i].innerText === text)`)
	click(t, page, "Restart the workers of shop")
	shows(t, page, "spillway workers restart shop")
	click(t, page, "Restart")
	shows(t, page, "the workers of shop are told to restart, each after its job")
	if last := locked(f, func() object { return f.writes[len(f.writes)-1] }); last["path"] != "namespaces/shop/workers/restart" {
		t.Errorf("the page wrote %v", last)
	}
}

func TestWorkersOfAQueueHaveNoRestartAndAViewerMayNotRestartThoseOfPHP(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.role = "viewer"
	f.withPHP("web1-4711", `App\Jobs\Mail`)
	page, _ := visit(t, chromium.Start(t), f.URL+"/#jobs=mail&view=workers", 1280, 900)
	shows(t, page, "2, with 6 children, 3 of them busy")
	until(t, page, "there is no restart", `!document.querySelector('[aria-label^="Restart"]')`)
	if err := page.Go(f.URL + "/?again#jobs=shop&view=workers"); err != nil {
		t.Fatal(err)
	}
	const why = "this needs the role operator; yours is viewer"
	click(t, page, "Restart the workers of shop ("+why+")")
	shows(t, page, why)
	if writes := locked(f, func() []object { return f.writes }); len(writes) > 0 {
		t.Errorf("the page wrote %v", writes)
	}
}

func TestQueuesOfPHPShowWhatPHPHoldsAndTheirFailuresByCause(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withPHP("web1-4711", `App\Jobs\Mail`)
	page, _ := visit(t, chromium.Start(t), f.URL+"/#jobs=shop&view=schedules", 1280, 900)
	shows(t, page, "8 + 3 held by PHP")
	shows(t, page, "what PHP pushes and runs itself is counted nowhere")
	until(t, page, "it has no schedules and no forecast", `[...document.querySelectorAll("[name=view]")].map((i) => i.parentNode.innerText).join() === "queues,workers"`)
	click(t, page, "12 dead letters of default")
	until(t, page, "the most of a cause are first", fmt.Sprintf(`document.querySelector(".causes")?.innerText.replace(/\s+/g, " ").trim() === %q`, `By cause, of 12 App\Jobs\Mail: buried 9 any other 3`))
	shows(t, page, "nacked at its last try")
	shows(t, page, "3 of 3")
	until(t, page, "its queues have no acts that PHP's have not", `[...document.querySelectorAll(".queue-page .action")].map((b) => b.innerText).join() === "Purge …,Respawn …,Delete …"`)
	click(t, page, "Respawn …")
	enter(t, page, "Time to live", "60")
	shows(t, page, "spillway jobs respawn shop default --ttl 60s")
}

func TestWorkersAndCausesOfStrangersAreOnlyTexts(t *testing.T) {
	t.Parallel()
	const attack = `<img src=x onerror="window.pwned=1">` + "\u202e"
	f := newFake(t)
	f.withPHP(attack, attack)
	f.workers[0]["version"], f.workers[0]["queues"], f.workers[0]["token"] = attack, []string{attack}, attack
	page, _ := visit(t, chromium.Start(t), f.URL+"/#jobs=shop&view=workers", 1280, 900)
	until(t, page, "the worker is shown", `document.querySelector(".queue-workers")?.innerText.includes("<img src=x")`)
	if err := page.Eval(`location.hash = "#at=shop&page=default&state=dead"`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the cause is shown", `document.querySelector(".causes")?.innerText.includes("<img src=x")`)
	until(t, page, "nothing was made of it", `!window.pwned && document.images.length === 0 && !/\u202e/.test(document.body.innerText)`)
}

func TestAxeFindsNothingInQueuesOfPHP(t *testing.T) {
	t.Parallel()
	script := axe(t)
	browser := chromium.Start(t)
	f := newFake(t)
	f.withPHP("web1-4711", `App\Jobs\`+strings.Repeat("Long", 30))
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int{1280, 400} {
			page, _ := visit(t, browser, f.URL+"/#jobs=shop&view=workers", width, 900)
			if err := page.Prefer(scheme); err != nil {
				t.Fatal(err)
			}
			shows(t, page, "2, with 6 children")
			if err := page.Eval(script+";0", nil); err != nil {
				t.Fatal(err)
			}
			when := fmt.Sprintf("%s, %d px, workers of queues", scheme, width)
			until(t, page, "restart is in the window", `document.querySelector('[aria-label^="Restart"]')?.getBoundingClientRect().right <= innerWidth`)
			until(t, page, "they are in sight", `document.getElementById("views").getBoundingClientRect().top < innerHeight / 2`)
			until(t, page, "nothing is wider than the window", `document.documentElement.scrollWidth <= innerWidth`)
			check(t, page, when)
			picture(t, page, fmt.Sprintf("workers-%s-%d", scheme, width), width, 900)
			click(t, page, "Restart the workers of shop")
			shows(t, page, "spillway workers restart shop")
			check(t, page, when+", dialog")
			picture(t, page, fmt.Sprintf("workers-%s-%d-restart", scheme, width), width, 900)
			click(t, page, "Cancel")
			if err := page.Eval(`[...document.querySelectorAll("[name=view]")][0].click()`, nil); err != nil {
				t.Fatal(err)
			}
			click(t, page, "12 dead letters of default")
			shows(t, page, "By cause, of 12")
			until(t, page, "a cause is shown in full", `(() => { const c = document.querySelector(".causes th"); return c.scrollWidth <= c.clientWidth; })()`)
			until(t, page, "no cause is wider than the window", `document.documentElement.scrollWidth <= innerWidth`)
			check(t, page, when+", dead letters")
			picture(t, page, fmt.Sprintf("causes-%s-%d", scheme, width), width, 900)
		}
	}
}
