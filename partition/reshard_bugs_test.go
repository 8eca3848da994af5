package partition

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua"
	lualayout "github.com/spillway-io/spillway/lua/layout"
)

// seededBug is the environment variable that names a bug for a process of this test.
const seededBug = "SPILLWAY_SEEDED_BUG"

// Not among these bugs, because few walks or none meet what they break: a resume that passes the fence or the end
// of a shard, a shard that is closed unfenced, a join in which closed loses. The model
// and the tests of the scripts and of records have them.

// scriptBugs are put into the scripts of a process of their own.
var scriptBugs = map[string]struct {
	script   *lua.Script
	old, new string
}{
	"produce without the fence":             {lua.Produce, "if shard.fence > layout then", "if false then"},
	"the fence of the first partition only": {lua.Produce, "if shard.fence > layout then", "if shard.fence > layout and not redis.call('ZSCORE', ready, string.sub(KEYS[3], name_at)) then"},
	"idempotent groups pass the fence":      {lua.Produce, "if shard.fence > layout then", "if shard.fence > layout and tonumber(ARGV[11]) > 0 then"},
	"the fence is looked at after the first write": {lua.Produce, "close_shard(ready, ledger, shard)\nreturn result",
		"close_shard(ready, ledger, shard)\nif shard.late then return { shard.now, -1, redis.call('HGET', ledger, 'record') or '' } end\nreturn result"},
	"the floor is not kept":                 {lua.Produce, "shard.high_water = math.max(shard.high_water, floor)", ""},
	"a fence forgets its mark":              {lualayout.Fence, "math.max(now_us, high) + 68719476736", "now_us"},
	"a fence makes no mark":                 {lualayout.Fence, "return { now, fence, mark,", "return { now, fence, 0,"},
	"a fence brings no record":              {lualayout.Fence, "if version > known then", "if false then"},
	"gone by due time":                      {lualayout.Gone, "due and math.max(1, due) or 0", "due and due <= now + 100000 and math.max(1, due) or 0"},
	"gone without the list or its due time": {lualayout.Gone, "result[i + 1] = due and math.max(1, due) or 0", "result[i + 1] = 0"},
	"gone without pauses":                   {lualayout.Gone, "elseif paused[1] or paused[i] then", "elseif false then"},
	"gone without the pause of all":         {lualayout.Gone, "elseif paused[1] or paused[i] then", "elseif paused[i] then"},
	"an answer for another partition":       {lualayout.Gone, "result[i + 1] = due and math.max(1, due) or 0", "result[i + 1] = i > 2 and result[3] or due and math.max(1, due) or 0"},
	"nothing left by keys alone":            {lualayout.Gone, "(shard.paused or entries_left(shard) > 0 or redis.call('ZCARD', ready) > 0)", "false"},
	"close early":                           {lualayout.Close, "if shard.fence <= own or ARGV[2] ~= '1' and entries_left(shard) ~= 0 or redis.call('ZCARD', ready) > 0 then", "if shard.fence <= own then"},
	"close without pauses":                  {lualayout.Close, "elseif name then", "elseif false then"},
	"pauses are copied again":               {lualayout.AdoptPauses, "if v[1] then", "if false then"},
	"pauses are not copied":                 {lualayout.AdoptPauses, "if not redis.call('HGET', ledger, field) then", "if false then"},
	"a pause passes the fence":              {lua.Pause, "if moved then", "if false then"},
	"the record is written over another":    {lualayout.Record, "if whole(redis.call('HGET', record, 'version') or 0, 0) ~= read then", "if false then"},
}

// codeBugs are put into a copy of the sources, which a test binary of its own is built from. Each text is
// in its file once; SEEDED is true in the process of the bug.
var codeBugs = []struct{ name, file, old, new string }{
	{"claims do not ask older homes", "lease.go", "if err == nil {\n\t\tclaims = s.gone", "if err == nil && !SEEDED {\n\t\tclaims = s.gone"},
	{"a lease is settled in the newest home", "settle.go", "if l.at == nil {", "if l.at == nil || SEEDED {"},
	{"claims know the newest home only", "lease.go", "sh := r.Namespace.shard(r.Shard); sh != nil", "sh := r.Namespace.shard(r.Shard); sh != nil && !SEEDED"},
	{"results of before are not asked", "layouts.go", "if !out[g] && g.IdempotencyKey != \"\" {", "if !out[g] && g.IdempotencyKey != \"\" && !SEEDED {"},
	{"results of closed layouts are not asked", "space/home.go", "o.Closed == 0 || o.Closed > now-window", "o.Closed == 0 || !SEEDED && o.Closed > now-window"},
	{"no floor", "space/home.go", "\treturn floor\n", "\tif SEEDED {\n\t\treturn 0\n\t}\n\treturn floor\n"},
	{"no floor of closed layouts", "space/home.go", "floor := l.Record.Floor", "floor := l.Record.Floor\n\tif SEEDED {\n\t\tfloor = 0\n\t}"},
	{"a layout is closed without its floor", "space/layouts.go", "record.Floor = max(record.Floor, sh.mark.Load())",
		"if !SEEDED {\n\t\t\t\trecord.Floor = max(record.Floor, sh.mark.Load())\n\t\t\t}"},
	{"the smaller floor wins", "space/record.go", "joined := Record{", "if SEEDED {\n\t\tr.Floor, o.Floor = min(r.Floor, o.Floor), min(r.Floor, o.Floor)\n\t}\n\tjoined := Record{"},
	{"a produce does not fence", "layouts.go", "if layouts.NeedsFence() && !fenced[g.Namespace] {", "if layouts.NeedsFence() && !fenced[g.Namespace] && !SEEDED {"},
	{"a produce does not fence", "layouts.go", "if at := l.Of(g.Partition); !at.Fenced() {", "if at := l.Of(g.Partition); !at.Fenced() && !SEEDED {"},
	{"a refused call is sent again backwards", "produce.go", "moved = append(moved, g)", "if SEEDED {\n\t\t\t\tmoved = slices.Insert(moved, 0, g)\n\t\t\t} else {\n\t\t\t\tmoved = append(moved, g)\n\t\t\t}"},
	{"a pause is set in the newest home only", "pause.go", "return n.homes(partition)\n", "if SEEDED {\n\t\treturn []*shard{n.shardOf(partition)}\n\t}\n\treturn n.homes(partition)\n"},
	{"a pause does not fence", "pause.go", "if err := s.fence(ctx, ns); err != nil {", "if SEEDED {\n\t\t} else if err := s.fence(ctx, ns); err != nil {"},
	{"a closed shard keeps its pauses", "layouts.go", "\tfor to, texts := range texts {", "\tif SEEDED {\n\t\ttexts = nil\n\t}\n\tfor to, texts := range texts {"},
	{"the pause of all is copied to one home", "layouts.go", "if name != pauseAll {", "if name != pauseAll || SEEDED {"},
	{"a layout is closed with its last shard", "layouts.go", "closed = s.closeShard(ctx, ns, own(at)) == nil && closed", "closed = s.closeShard(ctx, ns, own(at)) == nil && (closed || SEEDED)"},
	{"a layout is closed without looking", "layouts.go", "\tif !closed {", "\tif !closed && !SEEDED {"},
	{"the record is not mended", "space/copies.go", "newest != nil && known.newer(*newest)", "newest != nil && known.newer(*newest) && !SEEDED"},
	{"closed layouts are not summed", "ledger.go", "\t\tsh, r := own(at), all[at]\n", "\t\tsh, r := own(at), all[at]\n\t\tif SEEDED && layouts.Closed(at.Layout) {\n\t\t\tcontinue\n\t\t}\n"},
	{"a forgotten layout counts twice", "space/home.go", "if o.Sums == nil {", "if o.Sums == nil || SEEDED {"},
	{"a forgotten layout does not count", "ledger.go", "\t\tif l.Sums != nil {", "\t\tif l.Sums != nil && !SEEDED {"},
	{"forgetting closes no shard", "reshard.go", "case !r.Abandon && l.Closed == 0:", "case !r.Abandon && l.Closed == 0 && !SEEDED:"},
	{"forgetting closes no shard", "reshard.go", "case errors.Is(err, errNotEmpty):", "case errors.Is(err, errNotEmpty) && !SEEDED:"},
	{"forgetting closes no shard", "reshard.go", "case !r.Abandon && err != nil:", "case !r.Abandon && err != nil && !SEEDED:"},
	{"forgetting closes no shard", "reshard.go", "case read.err == nil && read.active > 0:", "case read.err == nil && read.active > 0 && !SEEDED:"},
	{"a shard is looked for in the pool of the file", "space/home.go", "sh.Backend = h.space.at(sh.Pool)",
		"sh.Backend = h.space.at(sh.Pool)\n\t\tif SEEDED {\n\t\t\tsh.Backend = h.space.backend\n\t\t}"},
	{"a second reshard while the first goes on", "space/layouts.go", "older := layouts.Older(current.N); len(older) >= s.Kind.Layouts {", "older := layouts.Older(current.N); len(older) >= s.Kind.Layouts && !SEEDED {"},
}

// buildWithBugs builds a test binary of this package that has all codeBugs, each of which does nothing
// unless it is named in the environment.
func buildWithBugs(t *testing.T) string {
	t.Helper()
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	there := t.TempDir()
	replaced := map[string]string{}
	write := func(file, text string) {
		path := filepath.Join(there, strings.ReplaceAll(file, "/", "_"))
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		replaced[filepath.Join(here, file)] = path
	}
	texts := textsWithBugs(t)
	helper := "package %s\n\nimport \"os\"\n\nfunc seeded(name string) bool { return os.Getenv(\"" + seededBug + "\") == name }\n"
	write("seeded.go", fmt.Sprintf(helper, "partition"))
	write("space/seeded.go", fmt.Sprintf(helper, "space"))
	for file, text := range texts {
		write(file, text)
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replaced})
	if err != nil {
		t.Fatal(err)
	}
	list, binary := filepath.Join(there, "overlay.json"), filepath.Join(there, "walks.test")
	if err := os.WriteFile(list, overlay, 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("go", "test", "-c", "-overlay", list, "-o", binary, ".").CombinedOutput()
	if err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	return binary
}

// textsWithBugs are the sources that have codeBugs, with all of them.
func textsWithBugs(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for _, bug := range codeBugs {
		if texts[bug.file] == "" {
			text, err := os.ReadFile(bug.file)
			if err != nil {
				t.Fatal(err)
			}
			texts[bug.file] = string(text)
		}
		if n := strings.Count(texts[bug.file], bug.old); n != 1 {
			t.Errorf("%s: %s holds %d times %q", bug.name, bug.file, n, bug.old)
		}
		texts[bug.file] = strings.Replace(texts[bug.file], bug.old, strings.ReplaceAll(bug.new, "SEEDED", "seeded("+strconv.Quote(bug.name)+")"), 1)
	}
	return texts
}

func TestEverySeededBugOfWalksStillHasItsPlace(t *testing.T) {
	t.Parallel()
	textsWithBugs(t)
	for name, bug := range scriptBugs {
		if !strings.Contains(bug.script.Source, bug.old) {
			t.Errorf("%s: %s.lua no longer holds %q", name, bug.script.Name, bug.old)
		}
	}
}

// seedBug puts a bug into this process; "" is none.
func seedBug(t *testing.T, name string) {
	t.Helper()
	bug, known := scriptBugs[name]
	if !known {
		return
	}
	broken := strings.Replace(bug.script.Source, bug.old, bug.new, 1)
	if broken == bug.script.Source {
		t.Fatalf("%s.lua no longer holds %q", bug.script.Name, bug.old)
	}
	if strings.Contains(broken, "shard.late") {
		broken = strings.Replace(broken, "if shard.fence > layout then", "shard.late = shard.fence > layout\nif false then", 1)
	}
	sum := sha1.Sum([]byte(broken))
	bug.script.Source, bug.script.SHA = broken, hex.EncodeToString(sum[:])
}

var (
	lookForBugs = flag.Bool("reshard-bugs", false, "run TestWalksFindSeededBugs, which takes minutes")
	bugWalks    = flag.Int("reshard-bug-walks", 600, "walks in which it must find each bug")
	onlyBug     = flag.String("reshard-bug", "", "only the bugs whose name holds this")
)

var foundIn = regexp.MustCompile(`(?s)--- FAIL: TestShardsChangeInWalks/(\d+) .*?_test\.go:\d+: ([^\n]*)`)

// Each of these bugs must make walks fail. Otherwise they do not test what they seem to test.
func TestWalksFindSeededBugs(t *testing.T) {
	t.Parallel()
	if !*lookForBugs {
		t.Skip("needs -reshard-bugs")
	}
	binaries := map[string]string{}
	for name := range scriptBugs {
		binaries[name] = os.Args[0]
	}
	with := buildWithBugs(t)
	for _, bug := range codeBugs {
		binaries[bug.name] = with
	}
	for _, name := range slices.Sorted(maps.Keys(binaries)) {
		if !strings.Contains(name, *onlyBug) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			c := exec.CommandContext(t.Context(), binaries[name], "-test.run=^TestShardsChangeInWalks$", "-test.timeout=5m", "-reshard-trace=0", fmt.Sprint("-reshard-walks=", *bugWalks))
			c.Env = append(os.Environ(), seededBug+"="+name)
			began := time.Now()
			out, err := c.CombinedOutput()
			found := foundIn.FindSubmatch(out)
			if err == nil || found == nil {
				t.Fatalf("%d walks saw nothing: %v\n%s", *bugWalks, err, out)
			}
			t.Logf("walk %s, after %v: %s", found[1], time.Since(began).Round(time.Millisecond), found[2])
		})
	}
}
