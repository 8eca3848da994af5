package job_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
	luajob "github.com/spillway-io/spillway/lua/job"
)

// recorded is a call of a script.
type recorded struct {
	script *lua.Script
	keys   []string
	argv   []any
}

// recordedCalls are the calls of all verbs on a scene, and those that only read.
func recordedCalls(c *scene) []recorded {
	var calls []recorded
	c.called = func(script *lua.Script, keys []string, argv []any) {
		calls = append(calls, recorded{script, slices.Clone(keys), slices.Clone(argv)})
	}
	for _, verb := range verbs {
		_, _ = verb(c)
	}
	c.peek("a")
	c.get("a", c.ready["a"][0])
	c.counts(10, "a", "b")
	c.must(luajob.DeadPage, []string{c.key("j:a"), c.key("d:a")}, 0, 10, 1000)
	c.called = nil
	return calls
}

// Whatever an argument is, the call is refused as a whole with a word for it, or it runs
// and the ledger is exact: no script ends half done.
func TestWrongArgumentsNeverLeaveACallHalfDone(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		values := []string{"", "x", "1.5", "nan", "9007199254740992", "1001"}
		for _, call := range recordedCalls(newScene(s)) {
			before := ""
			try := func(what string, keys []string, argv []any) {
				t.Helper()
				if before == "" {
					before = s.snapshot()
				}
				_, err := s.try(call.script, keys, argv...)
				if err == nil {
					before = ""
					return
				}
				if !strings.Contains(err.Error(), "bad arguments") && !strings.Contains(err.Error(), "ERR the ledger") && !strings.Contains(err.Error(), "invalid cursor") {
					t.Errorf("%s, %s: %v", call.script.Name, what, err)
				}
				s.same(call.script.Name+" changed the shard: "+what, s.snapshot(), before)
			}
			for i := range call.argv {
				try(fmt.Sprint("only ", i, " arguments"), call.keys, call.argv[:i])
				if text, ok := call.argv[i].(string); ok && (text == "a" || text == "b" || text == s.channel() || text == "publish") {
					continue // a name may be anything
				}
				for _, value := range values {
					argv := slices.Clone(call.argv)
					argv[i] = value
					try(fmt.Sprintf("argument %d is %q", i+1, value), call.keys, argv)
				}
			}
			try("a key too few", call.keys[:len(call.keys)-1], call.argv)
			s.exact("a", "b")
			if t.Failed() {
				return
			}
		}
	})
}
