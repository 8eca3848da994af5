//go:build clients

package e2e

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

// beforeLayouts is a published commit whose program knows nothing of layouts.
const beforeLayouts = "d5dab91"

// olderProgram builds the program of that commit, once a clone: it stays in bin. Only its own packages
// are compiled, a minute of CPU: the others are in the cache of go build, if there is no -trimpath.
func olderProgram(t *testing.T) string {
	t.Helper()
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		t.Skipf("not in a clone: %v", err)
	}
	dir, bin := t.TempDir(), filepath.Join(strings.TrimSpace(string(root)), "bin")
	older := filepath.Join(bin, "spillway-"+beforeLayouts)
	if _, err := os.Stat(older); err == nil {
		return older
	}
	archive := exec.Command("git", "-C", filepath.Dir(bin), "archive", "-o", filepath.Join(dir, "source.tar"), beforeLayouts)
	if out, err := archive.CombinedOutput(); err != nil {
		t.Skipf("this clone lacks commit %s: git fetch --unshallow brings it\n%s", beforeLayouts, out)
	}
	for _, args := range [][]string{{"tar", "-xf", "source.tar"}, {"go", "build", "-o", older + ".new", "./cmd/spillway"}, {"mv", older + ".new", older}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return older
}

// stored is all that the Redis at url holds, by key. DUMP of a hash would also show the order of its
// fields, which changes while Redis grows its table.
func stored(t *testing.T, client *redis.Client) map[string]string {
	t.Helper()
	all := map[string]string{}
	keys, err := client.Keys(context.Background(), "*").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, key := range keys {
		if fields, err := client.HGetAll(context.Background(), key).Result(); err == nil {
			all[key] = fmt.Sprint(fields)
			continue
		}
		if all[key], err = client.Dump(context.Background(), key).Result(); err != nil {
			t.Fatalf("%s: %v", key, err)
		}
	}
	return all
}

// The older program is the one that a rolling update has not replaced yet.
func TestAnOlderProgramWritesNothingToAFencedShardAndAsksForAnUpgrade(t *testing.T) {
	t.Parallel()
	older := olderProgram(t)
	server := redistest.Start(t)
	client := server.Client()
	// What is stored stays where it is: it is not due before the test ends.
	args := []string{"--redis", server.URL(), "--sink", "null:", "--linger", "2m"}
	old := serveBy(t, exec.Command(older), args...).ready(200)
	current := serve(t, args...).ready(200)
	if a := old.post("/v1/default/a", "application/json", `{"n":1}`); a.status != 200 {
		t.Fatalf("before the change of shards: %+v", a)
	}
	current.command("reshard", "default", "3", "--yes")
	want := current.ledger()
	if want.Accepted != 1 || want.Buffered != 1 {
		t.Fatalf("got %+v, want the entry of the older program", want)
	}
	if code := current.terminate(); code != 0 {
		t.Fatalf("exit %d", code)
	}
	before := stored(t, client)
	if a := old.post("/v1/default/a", "application/json", `{"n":2}`); a.status != http.StatusServiceUnavailable {
		t.Errorf("the older program answers %+v", a)
	}
	eventually(t, "/readyz of the older program asks for an upgrade", func() bool {
		resp, err := http.Get("http://" + old.admin + "/readyz")
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		text, _ := io.ReadAll(resp.Body)
		return resp.StatusCode == http.StatusServiceUnavailable && strings.Contains(string(text), "upgrade the program")
	})
	for _, name := range []string{"a", "never-seen"} {
		if a := old.post("/v1/default/"+name, "application/json", `{"n":3}`); a.status != http.StatusServiceUnavailable {
			t.Errorf("once it is not ready, the older program answers %+v for %s", a, name)
		}
	}
	old.kill()
	if after := stored(t, client); !maps.Equal(after, before) {
		t.Errorf("the older program changed what is stored: %q, before %q", after, before)
	}
	// The current program goes on from there.
	current = serve(t, args...).ready(200)
	if got := current.ledger(); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
	if a := current.post("/v1/default/a", "application/json", `{"n":2}`); a.status != 200 {
		t.Errorf("the current program answers %+v", a)
	}
}
