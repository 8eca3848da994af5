//go:build ui

package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// forecast has a delayed job in each step, and ticks each fourth.
func forecast(now int64, query url.Values) object {
	steps, _ := strconv.Atoi(query.Get("steps"))
	length, _ := time.ParseDuration(query.Get("step"))
	step := length.Milliseconds()
	due, scheduled := make([]int, steps), make([]int, steps)
	for i := range steps {
		due[i] = 20 + i*7%30
		if i%4 == 0 {
			scheduled[i] = 12
		}
	}
	return object{"now_ms": now, "step_ms": step, "due": due, "scheduled": scheduled, "scheduled_by": "estimate"}
}

// withSchedules gives the fake a namespace with three schedules, of two services, and a job with a trace.
func (f *fake) withSchedules(text string) {
	f.withQueues("welcome")
	f.queues = f.queues[:1]
	f.queues[0]["schedules"] = object{"active": 2, "stopped": 1, "overdue": 0, "owners": 1, "gone": 1, "ticks": object{}}
	now := time.Now().UnixMilli()
	next := func(in time.Duration) []string { return []string{time.Now().Add(in).Format(time.RFC3339)} }
	ticks := func(fired, missed int) object {
		return object{"total": fired + missed, "fired": fired, "missed": missed, "overlapped": 0, "paused": 0, "unregistered": 0, "superseded": 0, "waiting": 0}
	}
	run := object{"tick": "2026-11-25T01:30:00Z", "cause": "caught_up", "at_ms": now - 61_000, "ids": []string{strings.Repeat("0", 26)}}
	f.schedules = []object{
		{"name": "daily" + text, "queue": "reports", "state": "active", "owner": "billing" + text, "rev": 3, "next": next(3 * time.Hour), "ticks": ticks(40, 2), "jobs": object{"ok": 38, "failed": 1},
			"last": []object{run}, "spec": object{"cron": "30 2 * * *", "tz": "Europe/Berlin", "data": object{"report": text}, "track": true}},
		{"name": "hourly", "queue": "mails", "state": "active", "rev": 1, "next": next(7 * time.Minute), "ticks": ticks(812, 0), "last": []object{run}},
		{"name": "old", "queue": "mails", "state": "paused", "rev": 2, "next": []string{}, "ticks": ticks(0, 0), "last": []object{}},
	}
	f.services = []object{
		{"owner": "mailer", "version": 12, "state": "registered", "until_ms": now + 25_000, "owns": 1},
		{"owner": "billing" + text, "version": 7, "state": "gone", "until_ms": now - 95_000, "owns": 1},
	}
	f.trace = []object{
		{"at_ms": now - 9000, "event": "published", "by": "schedule daily" + text}, {"at_ms": now - 8990, "event": "claimed", "by": "push", "attempt": 1},
		{"at_ms": now - 8800, "event": "written", "sink": "http://crm/in" + text, "outcome": "retried", "status": 503, "ms": 187}, {"at_ms": now - 8790, "event": "nacked", "attempt": 1},
		{"at_ms": now - 5000, "event": "rolled_back"}, {"at_ms": now - 4000, "event": "acked", "by": "push", "attempt": 2},
	}
}

func TestAxeFindsNothingInSchedules(t *testing.T) {
	t.Parallel()
	script := axe(t)
	browser := chromium.Start(t)
	f := newFake(t)
	f.withSchedules("")
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int{1280, 390} {
			when := fmt.Sprintf("%s-%d", scheme, width)
			page, _ := visit(t, browser, f.URL+"/#view=schedules", width, 900)
			if err := page.Prefer(scheme); err != nil {
				t.Fatal(err)
			}
			shows(t, page, "in 2 h")
			if err := page.Eval(script+";0", nil); err != nil {
				t.Fatal(err)
			}
			look := func(what, text string) {
				t.Helper()
				shows(t, page, text)
				until(t, page, what+" is no wider than the window", `document.documentElement.scrollWidth <= innerWidth`)
				check(t, page, when+", "+what)
				picture(t, page, "schedules-"+when+"-"+what, width, 900)
			}
			look("list", "was due")
			click(t, page, "daily")
			look("one", "03:00:00+02:00")
			click(t, page, "Backfill …")
			look("dialog", "spillway schedules backfill mail reports daily --from")
			click(t, page, "Cancel")
			click(t, page, "Job "+strings.Repeat("0", 26))
			look("trace", "rolled back")
			click(t, page, "← queues of mail")
			click(t, page, "3 schedules of mail")
			if err := page.Eval(`[...document.querySelectorAll("[name=view]")].at(-1).click()`, nil); err != nil {
				t.Fatal(err)
			}
			until(t, page, "the chart is drawn", `document.querySelector("[aria-label^='Due in the next 24 hours'] canvas") && document.querySelectorAll(".due tbody tr").length === 4`)
			look("forecast", "Later ticks of some expressions are estimated.")
		}
	}
}

func TestSchedulesOfStrangersAreOnlyTexts(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withSchedules(`<img src=x onerror="window.pwned=1">` + "\u202e")
	page, _ := visit(t, chromium.Start(t), f.URL+"/#view=schedules&show=schedule&in=mail&partition=reports&id=daily", 1280, 900)
	until(t, page, "the list and one are shown", `document.querySelector(".schedules")?.innerText.includes("<img src=x") && document.querySelector(".drawer .payload")?.innerText.includes("<img src=x")`)
	click(t, page, "Job "+strings.Repeat("0", 26))
	until(t, page, "the trace is shown", `document.querySelector(".trace")?.innerText.includes("<img src=x")`)
	until(t, page, "nothing was made of it", `!window.pwned && document.images.length === 0 && !/\u202e/.test(document.body.innerText)`)
}

func TestAJobWithoutATraceSaysHowToKeepOne(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withQueues("welcome")
	page, _ := visit(t, chromium.Start(t), f.URL+"/#at=mail&page=welcome&state=dead", 1280, 900)
	click(t, page, "Job "+strings.Repeat("0", 27))
	shows(t, page, "No trace is kept. A rule with keep_trace keeps one.")
	until(t, page, "the job is shown, and in the address", `document.querySelector(".job .entry") && location.hash.includes("state=dead&job=000")`)
}

func TestAViewerSeesWhenAScheduleFiresAndIsToldWhyNoMore(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.role = "viewer"
	f.withSchedules("")
	page, _ := visit(t, chromium.Start(t), f.URL+"/#view=schedules", 1280, 900)
	click(t, page, "daily")
	const why = "this needs the role operator; yours is viewer"
	shows(t, page, "2031-03-31 02:30:00+02:00")
	shows(t, page, "Its account, runs and specification: "+why)
	if err := page.Eval(`location.hash = "#at=mail&page=reports&job=x"`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "what happened to a job is for viewers, too", `document.querySelector(".trace")?.innerText.includes("schedule daily")`)
	if err := page.Eval(`history.back()`, nil); err != nil {
		t.Fatal(err)
	}
	click(t, page, "Trigger …")
	until(t, page, "a notice says why", fmt.Sprintf(`document.querySelector(".notices").innerText.includes(%q)`, why))
	if asked := locked(f, func() int { return f.asked["namespaces/mail/queues/reports/schedules/daily"] }); asked > 0 {
		t.Error("the page asked for what its reader may not see")
	}
}

func TestTheKeyboardReachesAScheduleAndItsActs(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withSchedules("")
	page, _ := visit(t, chromium.Start(t), f.URL+"/#view=schedules", 1280, 900)
	until(t, page, "the list is shown", `document.querySelector(".schedules")`)
	press := func(keys ...string) {
		for _, key := range keys {
			if err := page.Press(key); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := page.Eval(`document.querySelector(".schedules").parentElement.focus()`, nil); err != nil {
		t.Fatal(err)
	}
	press("Tab", "Enter") // the first schedule
	until(t, page, "the drawer has the focus", `document.activeElement.getAttribute("aria-label") === "Schedule" && document.querySelector(".drawer .acts")`)
	for range 30 {
		var there bool
		if err := page.Eval(`document.activeElement.innerText === "Pause …"`, &there); err != nil || there {
			break
		}
		press("Tab")
	}
	press("Enter")
	shows(t, page, "spillway schedules pause mail reports daily")
	press("Escape")
	until(t, page, "the focus is back on the act", `!document.querySelector("dialog") && document.activeElement.innerText === "Pause …"`)
	press("Escape")
	until(t, page, "and on the row", `!document.querySelector(".drawer") && document.activeElement.innerText === "daily"`)
}

// send sends a request to the data port, again where a busy store does not confirm it.
func (s *spillway) send(method, path string, body any) []byte {
	s.t.Helper()
	for deadline := time.Now().Add(patience); ; {
		status, said := s.try(method, path, body)
		if status/100 == 2 {
			return said
		}
		if status != http.StatusServiceUnavailable || time.Now().After(deadline) {
			s.t.Fatalf("%s %s is answered %d: %s", method, path, status, said)
		}
	}
}

func (s *spillway) try(method, path string, body any) (status int, said []byte) {
	s.t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		s.t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(s.t.Context(), method, s.data+path, strings.NewReader(string(text)))
	if err != nil {
		s.t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	if said, err = io.ReadAll(resp.Body); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, said
}

// register registers a service with n schedules, spread over queues out-0 to out-9.
func (s *spillway) register(owner, ttl string, n int) {
	s.t.Helper()
	list := []object{}
	for i := range n {
		list = append(list, object{"queue": fmt.Sprint("out-", i%10), "name": fmt.Sprintf("%s-%03d", owner, i), "cron": fmt.Sprintf("%d 2 * * *", i%60),
			"tz": "Europe/Berlin", "track": true, "tries": 1, "data": object{"password": "canary", "report": i}})
	}
	s.send("PUT", "/v1/mail/_owners/"+owner+"?version=7&ttl="+ttl, object{"schedules": list})
}

func TestFiveHundredSchedulesOfWhichThreeFailArePleasant(t *testing.T) {
	t.Parallel()
	s := serve(t, "max_age: 10m", "--queue=mail")
	s.register("billing", "1h", 300)
	s.register("mailer", "1s", 200)
	for _, name := range []string{"billing-007", "billing-123", "billing-299"} {
		queue := "/v1/mail/out-" + name[len(name)-1:]
		s.send("POST", queue+"/schedules/"+name+"/trigger", nil)
		var claimed struct{ Jobs []object }
		if err := json.Unmarshal(s.send("POST", queue+"/claim?ttr=1m", nil), &claimed); err != nil || len(claimed.Jobs) != 1 {
			t.Fatal(err, claimed)
		}
		s.send("POST", queue+"/settle", object{"id": claimed.Jobs[0]["id"], "attempt": claimed.Jobs[0]["attempt"], "do": "bury"})
	}
	page, _ := visit(t, chromium.Start(t), s.console("operator"), 1280, 1400)
	shows(t, page, "you are operator-name")
	began := time.Now()
	click(t, page, "Schedules")
	until(t, page, "a page of them is shown", `document.querySelectorAll(".schedules tbody tr").length === 100`)
	t.Logf("100 of 500 schedules after %v", time.Since(began))
	until(t, page, "the row of the namespace counts them, and the service that is gone", `/1 service gone\s+500/.test(document.querySelector(".jobs tbody tr")?.innerText)`)
	until(t, page, "the services are listed, the one that is gone first", `/^mailer\s+gone/.test(document.querySelector(".services tbody")?.innerText)`)
	click(t, page, "next →")
	shows(t, page, "page 2: 101 to 200")
	enter(t, page, "Service", "mailer")
	until(t, page, "those of a service", `document.querySelectorAll(".schedules tbody tr").length === 100 && !document.querySelector(".schedules tbody").innerText.includes("billing")`)
	enter(t, page, "Queue", "out-3")
	until(t, page, "those of a queue and a service", `document.querySelectorAll(".schedules tbody tr").length === 20`)
	enter(t, page, "Queue", "")
	enter(t, page, "Service", "")
	if err := page.Eval(`[...document.querySelectorAll("[name=failing]")].at(-1).click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the three that fail", `[...document.querySelectorAll(".schedules tbody th")].map((th) => th.innerText).join() === "billing-123,billing-007,billing-299"`)
	until(t, page, "the filter is in the address", `location.hash.includes("failing=1")`)

	click(t, page, "billing-123")
	shows(t, page, "Europe/Berlin")
	until(t, page, "ten ticks", `document.querySelectorAll(".times tbody tr").length === 10`)
	until(t, page, "what is secret is masked", `/"password": "\*\*\*"/.test(document.querySelector(".drawer .payload")?.innerText)`)
	until(t, page, "how its jobs ended", `document.querySelector(".drawer .meta").innerText.includes("1 failed")`)

	for _, act := range []struct{ verb, said string }{{"Pause", "paused"}, {"Resume", "active"}, {"Trigger", "published 1 job"}} {
		click(t, page, act.verb+" …")
		shows(t, page, "spillway schedules "+strings.ToLower(act.verb)+" mail out-3 billing-123")
		click(t, page, act.verb)
		shows(t, page, "out-3/billing-123: "+act.said)
		until(t, page, "the dialog is closed", `!document.querySelector("dialog")`)
	}
	click(t, page, "Backfill …")
	choose(t, page, "The first time", "2026-10-01T12:00")
	choose(t, page, "The end, not included", "2026-10-04T12:00")
	shows(t, page, "3 ticks, 3 jobs.")
	until(t, page, "the command has the range", `/backfill mail out-3 billing-123 --from 2026-(09-30|10-0[12])T[0-9:]{8}Z --to 2026-10-0/.test(document.querySelector("dialog").innerText)`)
	enter(t, page, "Type 3 to confirm", "3")
	click(t, page, "Publish 3")
	shows(t, page, "out-3/billing-123: published 3 jobs")
	until(t, page, "the runs are there", `document.querySelectorAll(".drawer .ids button").length === 5`)
	if err := page.Eval(`[...document.querySelectorAll(".drawer .ids button")].at(-1).click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the job of the run that failed is shown", `document.querySelector(".job .entry")?.innerText.includes("dead since")`)
	until(t, page, "and what happened to it", `/published by schedule billing-123[^]*claimed[^]*buried/.test(document.querySelector(".trace")?.innerText.replace(/\s+/g, " "))`)
	click(t, page, "Schedules")
	until(t, page, "the views are back", `document.querySelector("[name=view]")`)

	if err := page.Eval(`[...document.querySelectorAll("[name=view]")].at(-1).click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the chart has all ticks of the next day", `/In all: .*ticks 500/.test(document.querySelector(".plot[aria-label^='Due']")?.ariaLabel)`)
	until(t, page, "and the table those of each queue", `document.querySelectorAll(".due tbody tr").length === 10`)
}
