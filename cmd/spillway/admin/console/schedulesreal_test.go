//go:build ui

package console

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

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
	choose(t, page, "The last time", "2026-10-04T12:00")
	shows(t, page, "3 ticks, 3 jobs.")
	until(t, page, "the command has the range", `/backfill mail out-3 billing-123 --from 2026-(09-30|10-0[12])T[0-9:]{8}Z --to 2026-10-0/.test(document.querySelector("dialog").innerText)`)
	enter(t, page, "Type 3 to confirm", "3")
	click(t, page, "Publish 3")
	shows(t, page, "out-3/billing-123: published 3 jobs")
	until(t, page, "the runs are there", `document.querySelectorAll(".drawer .ids button").length === 5`)
	if err := page.Eval(`[...document.querySelectorAll(".drawer .ids button")].at(-1).click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the job of the run that failed is shown", `document.querySelector(".drawer .entry")?.innerText.includes("dead since")`)
	until(t, page, "and what happened to it", `/published by schedule billing-123[^]*claimed[^]*buried/.test(document.querySelector(".trace")?.innerText.replace(/\s+/g, " "))`)
	click(t, page, "Close")

	if err := page.Eval(`[...document.querySelectorAll("[name=view]")].at(-1).click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "the chart has all ticks of the next day", `/In all: .*ticks 500/.test(document.querySelector(".plot[aria-label^='Due']")?.ariaLabel)`)
	until(t, page, "and the table those of each queue", `document.querySelectorAll(".due tbody tr").length === 10`)
}
