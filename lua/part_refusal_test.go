package lua_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// refuses runs a call that must fail and must change nothing.
func (p *part) refuses(text string, s *lua.Script, keys []string, argv ...any) {
	p.t.Helper()
	before := p.snapshot()
	reply, err := p.try(s, keys, argv...)
	got, refused := answerText(reply)
	if err != nil {
		got, refused = err.Error(), true
	}
	if !refused {
		p.t.Errorf("%s%q: got %v, want a refusal", s.Name, argv, reply)
	} else if !strings.Contains(got, text) {
		p.t.Errorf("%s%q: got %q, want %q", s.Name, argv, got, text)
	}
	if after := p.snapshot(); after != before {
		p.t.Errorf("%s%q failed and wrote:\nbefore\n%safter\n%s", s.Name, argv, before, after)
	}
}

// refusesBadArgs spoils each argument in each way that its declared type
// forbids, and leaves each out. zero lists those where 0 is bad, from 1; numbers
// the whole numbers among those that repeat, from 1.
func (p *part) refusesBadArgs(s *lua.Script, keys []string, argv []any, numbers []int, zero ...int) {
	p.t.Helper()
	var passed []string
	before := p.snapshot()
	try := func(what string, argv []any) {
		_, err := p.try(s, keys, argv...)
		if err == nil || !strings.Contains(err.Error(), "ERR "+s.Name+": bad arguments") || p.snapshot() != before {
			passed = append(passed, what)
			before = p.snapshot()
		}
	}
	for i := range argv {
		slot := s.Header.Args[min(i, len(s.Header.Args)-1)]
		repeats := s.Header.Rest && i >= len(s.Header.Args)-1
		if repeats && !slices.Contains(numbers, i+1) || !repeats && slot.Type == "string" {
			continue
		}
		bad := []any{"", "x", "-1", "1.5", "nan", "inf"}
		if slices.Contains(zero, i+1) {
			bad = append(bad, 0)
		}
		for _, value := range bad {
			if value == "-1" && (s == lua.Release && i%5 == 3 || s == lua.Produce && i >= 8) {
				continue // the header gives it a meaning
			}
			spoilt := slices.Clone(argv)
			spoilt[i] = value
			try(fmt.Sprintf("ARGV[%d]=%q", i+1, fmt.Sprint(value)), spoilt)
		}
	}
	for n := range len(argv) {
		try(fmt.Sprintf("only %d arguments", n), argv[:n])
	}
	if len(passed) > 0 {
		p.t.Errorf("not refused cleanly: %s", strings.Join(passed, ", "))
	}
}

// refusesForeign puts a foreign value under each of a call's keys, in each
// state. The call must fail and change nothing; or, where the state keeps it
// from looking at that key, succeed. Where the key is one partition's, the answer of
// that partition says so.
func refusesForeign(t *testing.T, states map[string]func(p *part), s *lua.Script, call func(p *part) (keys []string, argv []any)) {
	t.Helper()
	for state, prepare := range states {
		t.Run(state, func(t *testing.T) {
			on(t, func(t *testing.T, p *part) {
				probe, _ := call(newPart(t, p.c))
				for i := range probe {
					p := newPart(t, p.c)
					prepare(p)
					keys, argv := call(p)
					p.do("del", keys[i])
					p.do("xadd", keys[i], "*", "a", "foreign")
					before := p.snapshot()
					reply, err := p.try(s, keys, argv...)
					after := p.snapshot()
					refused := err != nil
					if refused && !strings.Contains(err.Error(), "WRONGTYPE") {
						t.Errorf("KEYS[%d]: got %v, want WRONGTYPE", i+1, err)
					}
					if text, ok := answerText(reply); ok {
						refused = true
						if !strings.Contains(text, "WRONGTYPE") {
							t.Errorf("KEYS[%d]: got the answer %q, want WRONGTYPE", i+1, text)
						}
					}
					if refused && after != before {
						t.Errorf("KEYS[%d] is foreign: refused, but\nbefore\n%safter\n%s", i+1, before, after)
					}
				}
			})
		})
	}
}

// answerText is the refusal of the only partition of a call.
func answerText(reply []any) (string, bool) {
	if len(reply) < 2 {
		return "", false
	}
	text, ok := reply[1].(string)
	return text, ok
}

// states are the states of a partition that a script may meet, healthy or not.
var states = map[string]func(p *part){
	"nothing there":           func(*part) {},
	"a partition":             func(p *part) { p.produce(p.fresh(1)...) },
	"one below a full batch":  func(p *part) { p.produce(p.fresh(3)...) },
	"a full partition":        func(p *part) { p.produce(p.fresh(10)...) },
	"a leased partition":      func(p *part) { p.produce(p.fresh(10)...); p.claim("t1") },
	"a lapsed lease":          func(p *part) { p.produce(p.fresh(10)...); p.claim("t1"); p.makeDue() },
	"a range that waits":      func(p *part) { p.produce(p.fresh(10)...); p.claim("t1"); p.release("t1", 0, 1) },
	"stale entries":           func(p *part) { p.produce(p.aged(2, 200_000)...); p.produce(p.fresh(4)...) },
	"a list without its hash": func(p *part) { p.do("rpush", p.q, "1", "2"); p.makeDue() },
	"a list without a member": func(p *part) { p.do("rpush", p.q, "1", "2") },
	"a vanished list":         func(p *part) { p.produce(p.fresh(4)...); p.do("del", p.q) },
	"a vanished leased list":  func(p *part) { p.produce(p.fresh(4)...); p.claim("t1"); p.do("del", p.q) },
	"a list cut short":        func(p *part) { p.produce(p.fresh(6)...); p.claim("t1"); p.do("ltrim", p.q, 2, -1) },
}
