//go:build unix && sinks

package command

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestThePythonExampleWritesEachEventOnceAndNamesTheOthers(t *testing.T) {
	t.Parallel()
	python, err := exec.LookPath("python3")
	must(t, err)
	db := t.TempDir() + "/events.db"
	s := newSink(t, python, examples+"plugin.py", db)
	must(t, s.Open(t.Context()))
	b := batch(`{"score":7}`, "no JSON", `"grüße"`)
	for range 2 {
		err := write(t, s, b)
		var named *sink.BatchError
		if !errors.As(err, &named) || len(named.Failed) != 1 || named.Failed[0].Entry != 1 || named.Failed[0].Err.Error() != "receiver dropped it: not_json" {
			t.Fatalf("got %v", err)
		}
	}
	got, err := exec.CommandContext(t.Context(), python, "-c", `import sqlite3, sys
print(sqlite3.connect(sys.argv[1]).execute("SELECT * FROM events ORDER BY seq").fetchall())`, db).CombinedOutput()
	must(t, err)
	const want = `[('kart', 'com.acme.kart', 1763629675123456, 1763629675100, '{"score": 7}'), ('kart', 'com.acme.kart', 1763629675123458, 1763629675100, '"gr\\u00fc\\u00dfe"')]`
	if strings.TrimSpace(string(got)) != want {
		t.Errorf("got %s, want %s", got, want)
	}
	s = newSink(t, python, examples+"plugin.py", "/nowhere/events.db")
	if err := write(t, s, b); err == nil || err.Error() != "run python3: exit status 1" || sink.IsPermanent(err) {
		t.Errorf("got %v", err)
	}
}
