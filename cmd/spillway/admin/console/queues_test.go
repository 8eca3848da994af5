//go:build ui

package console

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// mail is a namespace of kind queue.
func mail(name string) object {
	return object{
		"namespace": name, "jobs": 120, "max_jobs": 10_000_000, "queues": 2, "oldest_ready_age_ms": 61_000, "read_at_ms": time.Now().Add(time.Hour).UnixMilli(),
		"ledger": object{"published": 5000, "acked": 4870, "expired": 4, "deleted": 5, "lost": 1, "dead": 12, "ready": 70, "delayed": 30, "leased": 8, "died": 13, "respawned": 1},
		"rates":  object{"published": 20.5, "acked": 20.1, "expired": 0, "deleted": 0, "lost": 0, "died": 0, "respawned": 0},
		"sinks":  []object{},
	}
}

// withQueues gives the fake two namespaces of kind queue, with a queue each and a dead letter.
func (f *fake) withQueues(queue string) {
	f.queues = []object{mail("mail"), mail("sms")}
	f.rows = []object{
		{"queue": queue, "ready": 70, "delayed": 30, "leased": 8, "pending": 38, "dead": 12, "oldest_ready_age_ms": 61_000},
		{"queue": "bulk", "ready": 0, "delayed": nil, "leased": nil, "pending": 90_000, "dead": 0, "oldest_ready_age_ms": nil},
	}
	f.jobs = []object{{"job": strings.Repeat("0", 26), "queue": queue, "state": "dead", "at_ms": time.Now().UnixMilli(), "reason": "lapsed", "attempt": 3, "tries": 3, "published_at_ms": 1, "expires_at_ms": 0,
		"age_ms": 61_000, "attributes": object{"to": "bob"}, "bytes": 9, "data": object{"n": 1}}}
}

func TestTheBannerNamesJobsThatAreLost(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.withQueues("welcome")
	f.queues[0]["rates"].(object)["lost"], f.queues[0]["rates"].(object)["expired"] = 2.0, 1.5
	f.queues[1]["rates"].(object)["died"] = 0.5
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	for _, want := range []string{"Yes: 3.5 jobs a second", "mail: 1.5/s expired and 2/s lost.", "something other than Spillway removes jobs from Redis", "sms: 0.5/s dead-lettered."} {
		shows(t, page, want)
	}
	click(t, page, "mail")
	until(t, page, "the account of mail is shown", `document.querySelector(".jobs-ledger")?.innerText.includes("5,000 published = 4,870 acked")`)
	until(t, page, "its queues are shown", `document.querySelector(".queues tbody")?.innerText.includes("90,000 in both")`)
}

func TestAPushTargetThatFailsIsInTheRowAndTheBanner(t *testing.T) {
	t.Parallel()
	const attack = `<img src=x onerror="window.pwned=1">` + "\u202e"
	f := newFake(t)
	f.withQueues("welcome")
	open := object{"label": "http://erp/in", "type": "http", "state": "open", "failing_since_ms": nil, "last_error": ""}
	crm := object{"label": "http://crm/in", "type": "http", "state": "failing", "failing_since_ms": time.Now().UnixMilli() - 195_000, "last_error": "connection refused " + attack}
	f.queues[0]["sinks"], f.queues[1]["sinks"] = []object{open, crm}, []object{open}
	f.queues = append(f.queues, mail("idle"), mail("one"), mail("unpushed"))
	f.queues[2]["sinks"], f.queues[2]["ledger"] = []object{crm}, object{"published": 0, "acked": 0, "ready": 0, "delayed": 0, "leased": 0, "dead": 0, "lost": 0}
	f.queues[3]["sinks"], f.queues[3]["waiting"], f.queues[3]["ledger"] = []object{crm}, 1, object{"published": 9, "acked": 0, "ready": 9, "delayed": 0, "leased": 0, "dead": 0, "lost": 0}
	page, _ := visit(t, chromium.Start(t), f.URL+"/", 1280, 900)
	for _, want := range []string{"Not now, but look below.", "mail: jobs wait for a sink that fails; the namespace has 108 (30 delayed).", "one: 1 job waits for a sink that fails.", "sink http://crm/in fails since 3 min", "connection refused <img"} {
		shows(t, page, want)
	}
	for name, want := range map[string]string{"mail": "1 of 2 sinks fail", "sms": "ok", "idle": "sink fails", "one": "sink fails", "unpushed": "–"} {
		until(t, page, name+" says how its sinks are", fmt.Sprintf(`[...document.querySelectorAll(".jobs tbody tr")].find((row) => row.cells[0].innerText === %q)?.cells[1].innerText === %q`, name, want))
	}
	for name, want := range map[string]int{"mail": 2, "sms": 1, "idle": 1, "unpushed": 0} {
		until(t, page, name+" has its rows among the sinks", fmt.Sprintf(`[...document.querySelectorAll(".sinks tbody tr")].filter((row) => row.cells[1].innerText === %q).length === %d`, name, want))
	}
	until(t, page, "the chip says why", `document.querySelector(".jobs .chip.bad")?.title.startsWith("sink http://crm/in fails since 3 min")`)
	until(t, page, "nothing waits for the sink of idle", `!document.querySelector(".banner").innerText.includes("idle")`)
	until(t, page, "an error is only a text", `!window.pwned && document.images.length === 0 && !/\u202e/.test(document.body.innerHTML)`)
}

func TestAViewerOfQueuesIsRejectedInWords(t *testing.T) {
	t.Parallel()
	f := newFake(t)
	f.role = "viewer"
	f.withQueues("welcome")
	page, _ := visit(t, chromium.Start(t), f.URL+"/#jobs=mail", 1280, 900)
	const why = "this needs the role operator; yours is viewer"
	click(t, page, "Purge queue welcome ("+why+")")
	shows(t, page, why)
	click(t, page, "12 dead letters of welcome")
	until(t, page, "the drawer says why", fmt.Sprintf(`document.querySelector(".drawer .rejected")?.innerText === %q`, why))
	if writes := locked(f, func() []object { return f.writes }); len(writes) > 0 {
		t.Errorf("the page wrote %v", writes)
	}
	if asked := locked(f, func() int { return f.asked["namespaces/mail/queues/welcome/dead"] }); asked > 0 {
		t.Error("the page asked for what its reader may not see")
	}
}

func TestQueuesOfStrangersAreOnlyTexts(t *testing.T) {
	t.Parallel()
	const attack = `<img src=x onerror="window.pwned=1">` + "\u202e"
	f := newFake(t)
	f.withQueues(attack)
	f.namespaces = []object{}
	f.jobs[0]["attributes"], f.jobs[0]["data"], f.jobs[0]["job"] = object{attack: attack}, object{attack: attack}, attack
	page, _ := visit(t, chromium.Start(t), f.URL+"/#jobs=mail&show=jobs&in=mail&part=dead&partition="+"welcome", 1280, 900)
	until(t, page, "the job is shown", `document.querySelector(".drawer .entry")?.innerText.includes("<img src=x")`)
	until(t, page, "the queue is shown", `document.querySelector(".queues")?.innerText.includes("<img src=x")`)
	until(t, page, "nothing was made of it", `!window.pwned && document.images.length === 0 && !/\u202e/.test(document.body.innerText)`)
	until(t, page, "there is no table of partitions", `!document.querySelector(".partitions")`)
}

func TestAxeFindsNothingInQueues(t *testing.T) {
	t.Parallel()
	script := axe(t)
	browser := chromium.Start(t)
	f := newFake(t)
	f.withQueues("welcome")
	for _, scheme := range []string{"dark", "light"} {
		for _, width := range []int{1280, 400} {
			page, _ := visit(t, browser, f.URL+"/#jobs=mail", width, 900)
			if err := page.Prefer(scheme); err != nil {
				t.Fatal(err)
			}
			shows(t, page, "90,000 in both")
			if err := page.Eval(script+";0", nil); err != nil {
				t.Fatal(err)
			}
			when := fmt.Sprintf("%s, %d px, queues", scheme, width)
			check(t, page, when)
			picture(t, page, fmt.Sprintf("queues-%s-%d", scheme, width), width, 1500)
			click(t, page, "12 dead letters of welcome")
			shows(t, page, "12 dead letters, the oldest first")
			shows(t, page, "its last lease lapsed")
			check(t, page, when+", dead letters")
			picture(t, page, fmt.Sprintf("queues-%s-%d-dead", scheme, width), width, 900)
			click(t, page, "Respawn …")
			shows(t, page, "12 dead letters match")
			check(t, page, when+", dialog")
		}
	}
}

// request sends a request to the data port, with a body of JSON.
func (s *spillway) request(path, body string) string {
	s.t.Helper()
	resp, err := http.Post(s.data+path, "application/json", strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	defer resp.Body.Close()
	said, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		s.t.Fatalf("%s is answered %d: %s", path, resp.StatusCode, said)
	}
	return string(said)
}

// choose enters a text that a count depends on. The change event of a person comes after the
// page has drawn the input; that of enter comes before.
func choose(t *testing.T, page *chromium.Page, label, text string) {
	t.Helper()
	enter(t, page, label, text)
	if err := page.Eval("new Promise((done) => setTimeout(done, 50))", nil); err != nil {
		t.Fatal(err)
	}
	enter(t, page, label, text)
}

func TestAnOperatorRespawnsLooksAtAndPurgesJobs(t *testing.T) {
	t.Parallel()
	s := serve(t, "max_age: 10m", "--queue=mail")
	for i := range 3 {
		s.request("/v1/mail/welcome?tries=1", fmt.Sprintf(`{"n":%d,"password":"hunter2"}`, i))
	}
	s.request("/v1/mail/welcome?delay=1h", `{"later":true}`)
	page, _ := visit(t, chromium.Start(t), s.console("operator"), 1280, 1400)
	until(t, page, "the account is shown", `document.querySelector(".jobs-ledger")?.innerText.includes("3 ready + 1 delayed")`)
	click(t, page, "welcome")
	until(t, page, "the next job is shown, masked", `/"n": 0[^]*\*\*\*/.test(document.querySelector(".drawer .payload")?.innerText)`)
	s.request("/v1/mail/welcome/claim?count=2&ttr=1ms", "")
	until(t, page, "two are dead", `document.querySelector(".jobs-ledger")?.innerText.includes("2 dead")`)
	click(t, page, "2 dead letters of welcome")
	shows(t, page, "2 dead letters, the oldest first")
	click(t, page, "Respawn …")
	shows(t, page, "2 dead letters match")
	choose(t, page, "At most", "1")
	shows(t, page, "1 dead letter match")
	enter(t, page, "Type 1 to confirm", "1")
	click(t, page, "Respawn 1")
	shows(t, page, "1 dead letter made ready")
	until(t, page, "it is ready", `document.querySelector(".jobs-ledger")?.innerText.includes("1 dead + 2 ready")`)
	click(t, page, "delete")
	click(t, page, "Delete")
	shows(t, page, "1 job deleted")
	until(t, page, "it is gone", `document.querySelector(".jobs-ledger")?.innerText.includes("0 dead")`)
	click(t, page, "Close")
	click(t, page, "Purge queue welcome")
	shows(t, page, "2 jobs match")
	choose(t, page, "Which jobs", "all")
	shows(t, page, "3 jobs match")
	enter(t, page, "Type 3 to confirm", "3")
	click(t, page, "Purge 3")
	shows(t, page, "No queue has jobs.")
}
