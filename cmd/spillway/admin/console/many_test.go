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
	"github.com/spillway-io/spillway/lua/redistest"
)

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
