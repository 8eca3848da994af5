package app

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/partition"
)

// What is fixed when a namespace is first used, after a restart: nobody would serve what lies elsewhere.
func TestARestartRejectsWhatWouldLeaveDataBehind(t *testing.T) {
	t.Parallel()
	own, fast := redistest.Start(t, "--appendonly", "yes"), redistest.Start(t, "--appendonly", "yes")
	args := func(text string) []string {
		return []string{"--redis=" + own.URL(), "--role=ingest", "--config", writeFile(t, "spillway.yaml", text)}
	}
	pools := fmt.Sprintf("pools: {fast: \"%s\"}\n", fast.URL())
	const first = "namespaces:\n  kart: {pool: fast, shards: 2}\n  mail: {kind: queue, pool: fast, shards: 2}\n  chess: {}\n"
	a := startApp(t, args(pools+first)...)
	for _, path := range []string{"kart/p", "mail/q", "chess/p"} {
		res, err := a.http.Post("http://"+a.Listen+"/v1/"+path, "", strings.NewReader("1"))
		if err != nil || res.StatusCode != http.StatusOK {
			t.Fatal(path, res, err)
		}
		_ = res.Body.Close()
	}
	a.stop(t)
	for name, c := range map[string]struct{ file, want string }{
		"another pool of a buffer":   {pools + strings.Replace(first, "kart: {pool: fast", "kart: {pool: default", 1), "namespace kart: pool is default, but entries, dead letters or jobs of it are in pool fast"},
		"another pool of queues":     {pools + strings.Replace(first, "queue, pool: fast", "queue, pool: default", 1), "namespace mail: pool is default, but entries, dead letters or jobs of it are in pool fast"},
		"a pool that is gone":        {strings.ReplaceAll(first, "pool: fast, ", ""), "it was last used in pool fast, which the file does not have"},
		"other shards of queues":     {pools + strings.Replace(first, "fast, shards: 2}\n  chess", "fast, shards: 1}\n  chess", 1), "shards is 1, but the store was first used with 2"},
		"queues where a buffer was":  {pools + strings.Replace(first, "kart: {", "kart: {kind: queue, ", 1), "the store holds a buffer under this name"},
		"a buffer where queues were": {pools + strings.Replace(first, "kind: queue, ", "", 1), "the store holds queues under this name"},
	} {
		t.Run(name, func(t *testing.T) {
			err := newTestApp(t, args(c.file)...).Start(t.Context())
			if !errors.Is(err, partition.ErrIncompatible) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	t.Run("another name of the pool", func(t *testing.T) {
		startApp(t, args(strings.ReplaceAll(pools+first, "fast", "quick"))...)
	})
	t.Run("without the namespaces", func(t *testing.T) {
		b := startApp(t, args(pools+"namespaces: {golf: {}}\n")...)
		eventually(t, "what nobody serves is said", func() bool {
			all := strings.Join(b.current.Load().watch.Warnings(), "\n")
			return strings.Contains(all, "namespace kart has entries or jobs in pool fast") && strings.Contains(all, "namespace mail has entries or jobs in pool fast") &&
				strings.Contains(all, "namespace chess has entries or jobs in pool default")
		})
	})
}
