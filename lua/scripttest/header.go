// Package scripttest holds the contract of scripts in tests: what a header declares is
// what the script does.
package scripttest

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/lua"
)

// body is a script without its comments.
func body(source string) string {
	var b strings.Builder
	for line := range strings.Lines(source) {
		if !strings.HasPrefix(strings.TrimSpace(line), "--") {
			b.WriteString(line)
		}
	}
	return b.String()
}

// Check compares what a script declares with what it does. It returns what differs.
func Check(source, file string, includes map[string]string) []string {
	h, err := lua.ParseHeader(source)
	if err != nil {
		return []string{err.Error()}
	}
	var wrong []string
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	code := body(source)
	if h.Name != strings.TrimSuffix(file, ".lua") {
		complain("the header calls it %s, the file %s", h.Name, file)
	}
	for kind, slots := range map[string][]lua.Slot{"KEYS": h.Keys, "ARGV": h.Args} {
		used := 0
		for _, m := range regexp.MustCompile(kind+`\[(\d+)\]`).FindAllStringSubmatch(code, -1) {
			n, _ := strconv.Atoi(m[1])
			used = max(used, n)
		}
		want := len(slots)
		if kind == "ARGV" && h.Rest || kind == "KEYS" && h.KeyRest {
			want-- // the repeating ones are read in a loop
			if !strings.Contains(code, "#"+kind) {
				complain("%s[%d..] repeats, but #%s is never read", kind, want+1, kind)
			}
		}
		if used != want {
			complain("declares %d %s, uses %d", want, kind, used)
		}
	}
	// Every reply has a declared shape with the same leading number.
	for _, m := range regexp.MustCompile(`return \{ (\d)?`).FindAllStringSubmatch(code, -1) {
		found := m[1] == ""
		for _, shape := range h.Returns {
			found = found || strings.HasPrefix(shape, "{"+m[1])
		}
		if !found {
			complain("returns {%s…}, which no RETURNS declares", m[1])
		}
	}
	declared := map[string]bool{}
	uses := append(h.Uses, lua.With(source)...)
	for x := 0; x < len(uses); x++ {
		use := uses[x]
		if !declared[use] {
			uses = append(uses, lua.With(includes[use])...)
		}
		declared[use] = true
		if includes[use] == "" {
			complain("uses %s, which is no include", use)
		}
	}
	for name := range includes {
		call := regexp.MustCompile(`\b` + name + `\(`)
		called := call.MatchString(code)
		for _, use := range uses {
			called = called || use != name && call.MatchString(body(includes[use]))
		}
		if called != declared[name] {
			complain("include %s: called %v, declared %v", name, called, declared[name])
		}
	}
	// No key is made up in Lua: every call names a local that came from KEYS.
	for _, m := range regexp.MustCompile(`redis\.p?call\('[A-Z]+', ?(['"][^'"]+)`).FindAllString(code, -1) {
		complain("spells a key: %s", m)
	}
	return wrong
}

// Includes reads the included functions of the packages in folders, by their names.
func Includes(tb testing.TB, folders ...string) map[string]string {
	tb.Helper()
	all := map[string]string{}
	for _, folder := range folders {
		found := lua.Includes(os.DirFS(folder))
		if len(found) == 0 {
			tb.Fatalf("no includes found in %s", folder)
		}
		maps.Copy(all, found)
	}
	return all
}

// EveryScript checks all scripts of the test's folder. There is one for each of count.
func EveryScript(t *testing.T, count int, includes map[string]string) {
	t.Helper()
	paths, err := filepath.Glob("*.lua")
	if err != nil || len(paths) != count {
		t.Fatalf("got %d files, want one for each of the %d scripts in All (%v)", len(paths), count, err)
	}
	for _, path := range paths {
		source, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, wrong := range Check(string(source), path, includes) {
			t.Errorf("%s %s", path, wrong)
		}
	}
}

// ProbeTries checks that a permission probe tries every command that the scripts call: a
// missing right to another one would be found too late. They have at least min calls.
func ProbeTries(t *testing.T, probe *lua.Script, scripts []*lua.Script, min int) {
	t.Helper()
	var tried []string
	for _, m := range regexp.MustCompile(`try\('([A-Z]+)'`).FindAllStringSubmatch(probe.Source, -1) {
		tried = append(tried, m[1])
	}
	called := regexp.MustCompile(`(?:redis\.p?call\(|redis\.p?call, |read_all\()'([A-Z]+)'`)
	found := 0
	for _, s := range scripts {
		for _, m := range called.FindAllStringSubmatch(s.Source, -1) {
			found++
			if m[1] != "TIME" && !slices.Contains(tried, m[1]) { // every script runs TIME first
				t.Errorf("%s calls %s, which permission_probe does not try", s.Name, m[1])
			}
		}
	}
	if found < min {
		t.Errorf("only %d calls found: this proves nothing", found)
	}
}

var miscompiled = regexp.MustCompile(`(?m)^ *(\w+) = (?:not )?\w+\(.*\) and .*$|^ *(\w+) = (\w+) and not .*$|^ *\w+ = not .* and .*$`)

var keepsItself = regexp.MustCompile(`(?m)^ *(\w+) = (\w+) and .* and .*$`)

// NothingMiscompiled checks that no script has what the Lua of the embedded store gets
// wrong: it keeps the old value of x in `x = not f() and y`.
func NothingMiscompiled(t *testing.T, scripts []*lua.Script) {
	t.Helper()
	for _, s := range scripts {
		for _, line := range miscompiled.FindAllString(s.Source, -1) {
			t.Errorf("%s: %s", s.Name, line)
		}
		for _, m := range keepsItself.FindAllStringSubmatch(s.Source, -1) {
			if m[1] == m[2] {
				t.Errorf("%s: %s", s.Name, m[0])
			}
		}
	}
	if !miscompiled.MatchString("  named = not foreign(named) and named > 0\n") || !miscompiled.MatchString("x = x and not a and not b") {
		t.Error("the pattern finds nothing: this proves nothing")
	}
}
