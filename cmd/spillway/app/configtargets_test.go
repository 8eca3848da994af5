package app

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

func TestTargetsThatCannotWorkAreFoundBeforeTheStart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	for _, args := range [][]string{{"config", "check"}, {"serve", "--listen=127.0.0.1:0", "--admin-listen=127.0.0.1:0"}} {
		args = append(args, "--sink=file://"+dir, "--fallback=file://"+dir+"/none/x.ndjson https://h/?gzp=1 {env:NONE}", "--redis=redis://h:1/x", "--tls-cert=/nowhere", "--tls-key=/nowhere")
		_, stderr, code := runCommand(t, nil, "", args...)
		for _, want := range []string{
			"--sink: namespace default: open file: " + dir + " is a directory", "none does not exist: make it first", "did you mean gzip?", "NONE",
			"--redis: redis: ", "--tls-cert: tls_cert: open /nowhere: no such file or directory",
		} {
			if code != exitUsage || !strings.Contains(stderr, want) {
				t.Errorf("%s: exit %d, and %q is missing in %s", args[0], code, want, stderr)
			}
		}
	}
}

func TestIngestNeedsNoTargets(t *testing.T) {
	t.Parallel()
	if _, stderr, code := runCommand(t, nil, "", "config", "check", "--role=ingest", "--redis=redis://h", "--sink=file:///nowhere/x.ndjson"); code != exitOK {
		t.Error(stderr)
	}
}

func TestOnlineCheckConnectsAndWritesNothing(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dir := t.TempDir()
	check := func(args ...string) (string, string, int) {
		return runCommand(t, nil, "", append([]string{"config", "check", "--online", "--redis=" + server.URL()}, args...)...)
	}
	out, stderr, code := check("--sink=http://"+l.Addr().String()+"/x", "--fallback=file://"+filepath.Join(dir, "x.ndjson"))
	if code != exitOK || !strings.Contains(out, "store and sinks answer") {
		t.Error(out, stderr)
	}
	if files, _ := os.ReadDir(dir); len(files) > 0 {
		t.Errorf("the check made %v", files)
	}
	if n, err := server.Client().DBSize(t.Context()).Result(); n != 0 || err != nil {
		t.Errorf("the check left %d keys, %v", n, err)
	}
	const nobody = "127.0.0.1:1"
	_, stderr, code = check("--sink=http://"+nobody+"/", "--fallback=redis-stream://"+nobody, "--redis=redis://"+nobody)
	for _, want := range []string{"--sink: namespace default: sink http://" + nobody, "--fallback: namespace default: sink redis-stream://" + nobody, "--redis: redis: redis://" + nobody + ": redis at " + nobody + " refuses connections"} {
		if code != exitFailure || !strings.Contains(stderr, want) {
			t.Errorf("exit %d, and %q is missing in %s", code, want, stderr)
		}
	}
}

func TestConfigCheckWarnsOfSettingsThatDefeatEachOther(t *testing.T) {
	t.Parallel()
	out, stderr, code := runCommand(t, nil, "", "config", "check", "--capacity=5", "--max-age=4s", "--linger=3s", "--max-entry=2MiB", "--max-dead-bytes=1MiB")
	for _, want := range []string{
		"warning: --capacity: namespaces.default.capacity: 5 is less than batch, 128", "--linger: namespaces.default.linger: 3s is more than half of max_age, 4s",
		"--max-age: namespaces.default.max_age: 4s is less than sink_timeout, 10s", "namespaces.default.backoff_max: 30s is more than max_age, 4s",
		"--max-entry: max_entry: 2MiB is more than max_body, 1MiB", "namespaces.default.max_dead_bytes: 1MiB is less than max_entry, 2MiB",
	} {
		if code != exitOK || !strings.Contains(out, want) {
			t.Errorf("exit %d, and %q is missing in %s%s", code, want, out, stderr)
		}
	}
}
