package job_test

import (
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua/redistest"
)

// A server that refuses writes refuses every verb whole, and runs it once it accepts
// writes again.
func TestVerbsAreRefusedWholeByAServerThatRefusesWrites(t *testing.T) {
	t.Parallel()
	for _, fault := range redistest.Refusals {
		t.Run(fault.Word, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			client := server.Client()
			for name, verb := range verbs {
				if name == "revert" {
					continue // it claims first
				}
				c := newScene(newShard(t, client))
				before := c.snapshot()
				fault.Begin(t, server)
				_, err := verb(c)
				if err == nil || !strings.HasPrefix(err.Error(), fault.Word+" ") {
					t.Errorf("%s: got %v, want %s", name, err, fault.Word)
				}
				c.same(name+" changed the shard", c.snapshot(), before)
				fault.End(t, server)
				if _, err := verb(c); err != nil {
					t.Errorf("%s, later: %v", name, err)
				}
				c.exact("a", "b")
			}
		})
	}
}
