//go:build ui

package console

import (
	"net/http"
	"testing"

	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
)

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
	click(t, page, "Replay these …")
	shows(t, page, "1 letter match")
	enter(t, page, "Type 1 to confirm", "1")
	click(t, page, "Replay 1")
	shows(t, page, "1 letter replayed")
	until(t, page, "it is delivered", `document.querySelector(".ledger").innerText.includes("1 delivered")`)
	shows(t, page, "No dead letter: the sink took every entry.")
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
	shows(t, page, "No dead letter: the sink took every entry.")
}
