//go:build examples

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/bench"
	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/client/clienttest/chromium"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

const players = 40

// pipeline is the whole example on free ports: ClickHouse, Spillway and the site.
type pipeline struct {
	site
	spillway, admin string
}

func startPipeline(t *testing.T) *pipeline {
	t.Helper()
	dir := t.TempDir()
	ports, err := proc.FreeAddrs(4)
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{site{ports[0], "../../../ingest/client/js/reporter.js", "http://" + ports[1]}, "http://" + ports[2], "http://" + ports[3]}
	moved := strings.NewReplacer(
		"127.0.0.1:8000", ports[0], "127.0.0.1:8123", ports[1], ">8123<", ">"+proc.Port(ports[1])+"<",
		"/tmp/spillway-clickhouse/", dir+"/clickhouse/", "/tmp/spillway-game", dir+"/game")
	for _, name := range []string{"clickhouse.xml", "spillway.yaml"} {
		text, err := os.ReadFile(name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), []byte(moved.Replace(string(text))), 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	clickHouse := start(t, dir, "clickhouse-server", "--config-file="+filepath.Join(dir, "clickhouse.xml"))
	await(t, clickHouse, "ClickHouse", func(ctx context.Context) error { return ask(ctx, p.clickHouse, "SELECT 1", nil) })
	table, err := os.ReadFile("../../sql/clickhouse.sql")
	if err == nil {
		err = ask(t.Context(), p.clickHouse, string(table), nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	binary, err := proc.Build(dir, "./cmd/spillway")
	if err != nil {
		t.Fatal(err)
	}
	serve := start(t, dir, binary, "serve", "--config", filepath.Join(dir, "spillway.yaml"), "--listen", ports[2], "--admin-listen", ports[3])
	await(t, serve, "spillway", func(ctx context.Context) error { _, err := bench.Get(ctx, p.admin+"/readyz"); return err })
	stop, err := p.site.start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(stop)
	return p
}

func start(t *testing.T, dir, program string, args ...string) *proc.Process {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		t.Fatalf("%v; `make test-examples` installs it", err)
	}
	p, err := proc.Start(dir, filepath.Base(program), path, args...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Stop)
	return p
}

func await(t *testing.T, p *proc.Process, name string, ready func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := p.Await(ctx, name, ready); err != nil {
		t.Fatal(err)
	}
}

// ask asks ClickHouse, and decodes its one answer into result.
func ask(ctx context.Context, url, sql string, result any) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/?output_format_json_quote_64bit_integers=0", strings.NewReader(sql))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil || result == nil {
		return err
	}
	return json.Unmarshal(bytes.TrimSpace(text), result)
}

func (p *pipeline) count(t *testing.T, sql string) (n int64) {
	t.Helper()
	if err := ask(t.Context(), p.clickHouse, sql, &n); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return n
}

func TestEveryEventOfTheGameAndThePlayersCanBeAskedFor(t *testing.T) {
	p := startPipeline(t)
	var total spillway.Stats
	played := make(chan error, 1)
	go func() {
		var err error
		total, err = simulate(context.Background(), p.spillway, players, 12*time.Second)
		played <- err
	}()

	page := chromium.Start(t).Open(t, "http://"+p.listen+"/?autoplay&spillway="+p.spillway)
	var web struct{ Reported, Acked int64 }
	for web.Acked < 5 { // ends with the test's time
		if err := page.Eval("new Promise(done => setTimeout(() => done(spillway.stats()), 200))", &web); err != nil {
			t.Fatal(err)
		}
	}
	var shown string
	for !strings.Contains(shown, "completed one") {
		if err := page.Eval(`new Promise(done => setTimeout(() => done(document.getElementById("answers").textContent), 200))`, &shown); err != nil {
			t.Fatal(err)
		}
	}
	if file := os.Getenv("SCREENSHOT"); file != "" { // the picture of README.md
		png, err := page.Screenshot(1000, 470)
		if err == nil {
			err = os.WriteFile(file, png, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	// What the page reports as its user leaves arrives, too.
	if err := page.Eval(`(spillway.report("web-last", { event: "left" }), spillway.stats())`, &web); err != nil {
		t.Fatal(err)
	}
	if err := page.Close(); err != nil {
		t.Fatal(err)
	}
	if err := <-played; err != nil {
		t.Fatal(err)
	}

	const left = "SELECT count() FROM events FINAL WHERE partition = 'web-last'"
	redistest.Until(t, time.Minute, "what the page reported last is there", func() bool { return p.count(t, left) == 1 })
	account, err := bench.ReadAccount(t.Context(), p.admin, "game", false)
	for deadline := time.Now().Add(time.Minute); err == nil && account.Ledger.Delivered < account.Ledger.Accepted && time.Now().Before(deadline); {
		account, err = bench.ReadAccount(t.Context(), p.admin, "game", false)
	}
	if l := account.Ledger; err != nil || l.Delivered != l.Accepted || l.Accepted < total.Acked+web.Acked {
		t.Fatalf("ledger %+v, %v; the players had %d acknowledged, the page %d", l, err, total.Acked, web.Acked)
	}
	if got := p.count(t, "SELECT count() FROM events FINAL"); got != account.Ledger.Accepted {
		t.Errorf("ClickHouse has %d events, %d were accepted", got, account.Ledger.Accepted)
	}
	if got := p.count(t, "SELECT count() FROM events FINAL WHERE partition LIKE 'player-%'"); got < total.Acked {
		t.Errorf("ClickHouse has %d events of the players, %d were acknowledged", got, total.Acked)
	}
	if sum := total.Acked + total.Pending + sumOf(total.Dropped); sum != total.Reported || total.Pending != 0 {
		t.Errorf("the players' counts do not add up: %+v", total)
	}
	for question, want := range map[string]string{
		// A bucket of ten seconds has all players, and perhaps the page.
		"concurrent_players": fmt.Sprintf(` (%d|%d|%d) `, players, players+1, players+2),
		"funnel":             "completed the second",
		"client_drops":       fmt.Sprintf("%s|%s", spillway.Stale, spillway.RetriesExhausted),
	} {
		answer, err := p.ask(t.Context(), question)
		if err != nil || !regexp.MustCompile(want).MatchString(answer) {
			t.Errorf("%s: got %v\n%s\nwant one with %s", question, err, answer, want)
		}
	}
}

func sumOf(dropped map[spillway.Reason]int64) (sum int64) {
	for _, n := range dropped {
		sum += n
	}
	return sum
}
