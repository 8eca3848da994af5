//go:build ui

package console

import (
	"fmt"
	"net/http"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

// rejected asks the server itself, whatever the page allows, and returns its status and words.
func rejected(t *testing.T, page *chromium.Page, route string) (status int, said string) {
	t.Helper()
	var answer struct {
		Status int
		Said   string
	}
	ask := fmt.Sprintf(`fetch(location.protocol + "//" + location.host + %q, { method: "POST", headers: { "Content-Type": "application/json" }, body: "{}" })
		.then(async (r) => ({ status: r.status, said: await r.text() }))`, "/api/v1/namespaces/kart/"+route)
	if err := page.Eval(ask, &answer); err != nil {
		t.Fatal(err)
	}
	return answer.Status, answer.Said
}

func TestAnOperatorPausesPeeksAndResumes(t *testing.T) {
	t.Parallel()
	s := serve(t, "max_age: 10m")
	page, _ := visit(t, chromium.Start(t), s.console("operator"), 1280, 1400)
	s.status.Store(http.StatusServiceUnavailable)
	s.report("kart-7", "lap-1", `{"lap":1,"driver":{"email":"a@example.org"},"text":"<script>window.pwned=1</script>\u202e"}`)
	click(t, page, "Pause kart-7")
	enter(t, page, "Reason", "new certificate")
	click(t, page, "Pause")
	shows(t, page, "kart/kart-7 is paused")
	until(t, page, "its row says so", row("kart-7")+`?.innerText.includes("paused")`)
	until(t, page, "the page says who and why", `/Delivery of kart\/kart-7 is paused since .* by operator-name: new certificate/.test(document.querySelector(".pause")?.innerText)`)

	s.status.Store(http.StatusOK)
	s.report("kart-8", "lap-2", `{"lap":2}`)
	until(t, page, "the others are delivered", `document.querySelector(".ledger").innerText.includes("1 delivered")`)

	click(t, page, "Peek into kart-7")
	shows(t, page, "1 entry waiting; all of them, oldest first. Looking takes nothing away.")
	until(t, page, "what should be masked is", `/"email": "\*\*\*"/.test(document.querySelector(".payload").innerText)`)
	shows(t, page, `<script>window.pwned=1</script>⟨U+202E⟩`)
	until(t, page, "only admins see the rest", `document.querySelector(".drawer .check input").disabled`)
	click(t, page, "Audit")
	shows(t, page, "by operator-name, operator")
	click(t, page, "Live tail")
	until(t, page, "it is live", `/Waiting|Live/.test(document.querySelector(".drawer").innerText)`)
	for i := range 5 {
		s.report("kart-7", fmt.Sprint("tail-", i), `{"lap":3}`)
	}
	until(t, page, "the tail has an entry", `document.querySelector(".drawer .entry")?.innerText.includes("tail-")`)
	click(t, page, "Close")

	if status, said := rejected(t, page, "purge"); status != http.StatusForbidden {
		t.Errorf("the purge of an operator is answered %d, %s", status, said)
	}
	click(t, page, "Resume kart-7")
	until(t, page, "all is delivered", `document.querySelector(".ledger").innerText.includes("7 delivered")`)

	click(t, page, "Pause kart")
	click(t, page, "Pause")
	shows(t, page, "Delivery of kart is paused since")
	shows(t, page, "by operator-name")
	click(t, page, "Resume delivery of kart")
	until(t, page, "it is delivered again", `!document.querySelector(".pause")`)
}

func TestAnAdminPurgesWhatTheDryRunCounted(t *testing.T) {
	t.Parallel()
	s := serve(t, "max_age: 10m")
	page, _ := visit(t, chromium.Start(t), s.console("admin"), 1280, 1400)
	s.status.Store(http.StatusServiceUnavailable)
	for i := range 12 {
		s.report("kart-7", fmt.Sprint("lap-", i), `{"lap":1}`)
	}
	click(t, page, "Pause kart-7") // no lease is on it then
	click(t, page, "Pause")
	until(t, page, "its row says so", row("kart-7")+`?.innerText.includes("paused")`)
	click(t, page, "Purge kart-7")
	shows(t, page, "12 entries of 1 partition match.")
	enter(t, page, "Type 12 to confirm", "12")
	click(t, page, "Purge 12")
	shows(t, page, "12 entries purged of partition kart-7 of kart")
	until(t, page, "the account has them", `document.querySelector(".ledger").innerText.includes("12 purged")`)
}

func TestAViewerIsRejectedByTheServerToo(t *testing.T) {
	t.Parallel()
	s := serve(t)
	page, _ := visit(t, chromium.Start(t), s.console("viewer"), 1280, 1400)
	shows(t, page, "you are viewer-name, role viewer")
	for _, route := range []string{"pause", "resume", "purge", "dead/replay", "dead/delete"} {
		if status, said := rejected(t, page, route); status != http.StatusForbidden {
			t.Errorf("%s: answered %d, %s; want 403", route, status, said)
		}
	}
	click(t, page, "Dead letters")
	shows(t, page, "this needs the role operator; yours is viewer")
}

func TestADeadLetterIsReplayedOnce(t *testing.T) {
	t.Parallel()
	s := serve(t, "max_age: 10m")
	page, _ := visit(t, chromium.Start(t), s.console("operator"), 1280, 1400)
	s.status.Store(http.StatusUnprocessableEntity)
	s.report("kart-7", "lap-1", `{"lap":-1}`)
	until(t, page, "it is dead", `document.querySelector(".ledger").innerText.includes("1 dead")`)
	click(t, page, "Dead letters")
	until(t, page, "it is listed with the sink's words", `/kart-7[^]*no such lap/.test(document.querySelector(".drawer .entry")?.innerText)`)
	click(t, page, "inspect")
	until(t, page, "its payload is shown", `document.querySelector(".drawer .payload")?.innerText.includes('"lap": -1')`)
	if status, said := rejected(t, page, "dead/delete"); status != http.StatusForbidden {
		t.Errorf("the delete of an operator is answered %d, %s", status, said)
	}
	s.status.Store(http.StatusOK)
	until(t, page, "its cause is counted", `/^By cause, of 1\s[^]*no such lap[^]*\s1$/.test(document.querySelector(".causes")?.innerText.trim())`)
	if err := page.Eval(`document.querySelector(".causes button").click()`, nil); err != nil {
		t.Fatal(err)
	}
	until(t, page, "it is chosen", `document.querySelector(".causes button").ariaPressed === "true"`)
	click(t, page, "Replay these …")
	shows(t, page, "dead letters of kart: cause ")
	shows(t, page, "1 letter match")
	enter(t, page, "Type 1 to confirm", "1")
	click(t, page, "Replay 1")
	shows(t, page, "1 letter replayed")
	until(t, page, "it is delivered", `document.querySelector(".ledger").innerText.includes("1 delivered")`)
	shows(t, page, "No dead letter of ")
	if taken := s.received.Load(); taken != 1 {
		t.Errorf("the sink took %d batches, want 1", taken)
	}
}

func TestAnAdminDeletesDeadLetters(t *testing.T) {
	t.Parallel()
	s := serve(t, "max_age: 10m")
	page, _ := visit(t, chromium.Start(t), s.console("admin"), 1280, 1400)
	s.status.Store(http.StatusUnprocessableEntity)
	for _, id := range []string{"lap-1", "lap-2", "lap-3"} {
		s.report("kart-7", id, `{"lap":-1}`)
	}
	until(t, page, "they are dead", `document.querySelector(".ledger").innerText.includes("3 dead")`)
	click(t, page, "Dead letters")
	shows(t, page, "3 letters")
	click(t, page, "Delete these …")
	shows(t, page, "3 letters match.")
	enter(t, page, "Type 3 to confirm", "3")
	click(t, page, "Delete 3")
	shows(t, page, "3 letters deleted")
	shows(t, page, "No dead letter of ")
}
