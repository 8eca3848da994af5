package deploy

import (
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/spillway-io/spillway"

// importRules say who may not import whom. Patterns are those of the go
// command, below our module unless they name another one; "except" lists what
// a rule allows all the same.
var importRules = []struct {
	from, to string
	except   []string
	reason   string
}{
	{"lua/...", "...", []string{"lua/..."},
		"lua is the lowest package: it has the text of scripts and their arguments, and does not know what they mean"},
	{"ingest/wire/...", "...", []string{"ingest/wire/..."},
		"wire is the forms alone: cmd/spillway reports with them, and nobody who needs them pulls in a server"},
	{"ingest/transport", "...", []string{"ingest/wire", "partition/share"},
		"connections and framing know neither routes nor bodies"},
	{"ingest/memory", "...", []string{"ingest/transport", "ingest/wire", "partition/share"},
		"bodies and their memory know neither entries nor jobs"},
	{"ingest/protocol/...", "...", []string{"ingest/protocol/...", "ingest/wire"},
		"an adapter is the bodies and answers of an SDK; it knows neither a server nor the store"},
	{"ingest/protocol/...", "github.com/valyala/fasthttp/...", nil,
		"an adapter is the bodies and answers of an SDK; it knows neither a server nor the store"},
	{"ingest/verb", "...", []string{"ingest/wire", "partition", "partition/control", "partition/job", "partition/schedule"},
		"a verb knows neither the ports that mount it nor the command that runs it"},
	{"partition/...", "...", []string{"partition/...", "lua/..."},
		"partition is the domain: it does not know how entries arrive or leave"},
	{"ingest/...", "drain/...", nil,
		"ingest and drain meet in partition, so that either runs without the other"},
	{"drain/...", "ingest/...", nil,
		"ingest and drain meet in partition, so that either runs without the other"},
	{"drain/sink/...", "drain", nil,
		"a sink is what the drainer calls; a plugin author needs the contract alone"},
	{"drain/sink/...", "drain/guard", nil,
		"a sink is what the drainer calls; a plugin author needs the contract alone"},
	{"drain/sink/...", "drain/push", nil,
		"a sink is what the drainer calls; a plugin author needs the contract alone"},
	{"drain/process", "...", nil,
		"a child process and its bounds: what it is for, the caller knows"},
	{"drain/guard", "...", []string{"drain/sink", "partition/adaptive", "partition/clocktest", "partition/metric"},
		"the guard of a sink knows neither who writes to it nor what a Write holds"},
	{"drain", "drain/push", nil,
		"buffers and queues share the guard of a sink and nothing else"},
	{"drain/push", "drain", nil,
		"buffers and queues share the guard of a sink and nothing else"},
	{"bench/...", "ingest/...", []string{"ingest/client"}, // it shares no code with the server either, and is measured
		"the loader is a client like any other; sharing the server's code would hide its faults"},
	{"bench/...", "drain/...", nil,
		"the loader is a client like any other; sharing the server's code would hide its faults"},
	{"ingest/...", "cmd/...", nil,
		"cmd is wiring, and nothing can depend on how it is wired"},
	{"drain/...", "cmd/...", nil,
		"cmd is wiring, and nothing can depend on how it is wired"},
	{"bench/...", "cmd/...", nil,
		"cmd is wiring, and nothing can depend on how it is wired"},
	{"ingest/...", "bench/...", nil,
		"only cmd uses the load generator"},
	{"drain/...", "bench/...", nil,
		"only cmd uses the load generator"},
	{"ingest/...", "github.com/redis/go-redis/...", nil,
		"only partition talks to Redis: its errors say what may be retried, those of go-redis do not"},
	{"drain", "github.com/redis/go-redis/...", nil,
		"only partition talks to Redis: its errors say what may be retried, those of go-redis do not"},
}

type goPackage struct {
	ImportPath                         string
	Imports, TestImports, XTestImports []string
}

// listed is what the go command says, which takes long.
var listed struct {
	once     sync.Once
	packages []goPackage
}

func listPackages(t *testing.T) []goPackage {
	t.Helper()
	listed.once.Do(func() {
		list := output(t, "go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", "./...")
		for dec := json.NewDecoder(strings.NewReader(list)); ; {
			var p goPackage
			if err := dec.Decode(&p); errors.Is(err, io.EOF) {
				return
			} else if err != nil {
				t.Fatal(err)
			}
			listed.packages = append(listed.packages, p)
		}
	})
	if len(listed.packages) == 0 {
		t.Fatal("go list failed, see the test that asked it")
	}
	return listed.packages
}

func TestImportsGoDownOnly(t *testing.T) {
	t.Parallel()
	pkgs := listPackages(t)
	for _, rule := range importRules {
		applied := false
		for _, p := range pkgs {
			if !matches(rule.from, p.ImportPath) {
				continue
			}
			applied = true
			for _, to := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
				excepted := slices.ContainsFunc(rule.except, func(pattern string) bool { return matches(pattern, to) })
				if matches(rule.to, to) && !excepted && to != p.ImportPath {
					t.Errorf("%s imports %s: %s", p.ImportPath, to, rule.reason)
				}
			}
		}
		if !applied {
			t.Errorf("no package is %s: the rule guards nothing", rule.from)
		}
	}
}

func TestImportsOfSinksAreNotTheirSiblings(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, to := range p.Imports {
			if strings.HasPrefix(p.ImportPath, module+"/drain/sink/") && strings.HasPrefix(to, module+"/drain/sink/") {
				t.Errorf("%s imports %s: each sink is independent; what sinks share belongs into drain/sink", p.ImportPath, to)
			}
		}
	}
}

// Whoever reports events gets no server and no third party with the client, nor with what it shares
// with push.
func TestImportsOfTheGoClientAreTheStandardLibraryOnly(t *testing.T) {
	t.Parallel()
	found := false
	client := func(path string) bool {
		return strings.HasPrefix(path, module+"/ingest/client") || path == module+"/partition/adaptive"
	}
	for _, p := range listPackages(t) {
		if !client(p.ImportPath) {
			continue
		}
		found = true
		for _, to := range p.Imports {
			first, _, _ := strings.Cut(to, "/")
			if strings.Contains(first, ".") && !client(to) {
				t.Errorf("%s imports %s", p.ImportPath, to)
			}
		}
	}
	if !found {
		t.Error("there is no ingest/client: the rule guards nothing")
	}
}

func TestImportsOfTestHelpersStayInTests(t *testing.T) {
	t.Parallel()
	for _, p := range listPackages(t) {
		for _, to := range p.Imports {
			helper := strings.HasSuffix(to, "test") || strings.HasSuffix(to, "model")
			if strings.HasPrefix(to, module) && helper && !strings.HasSuffix(p.ImportPath, "test") {
				t.Errorf("%s imports %s: only tests may import a test helper", p.ImportPath, to)
			}
		}
	}
}

// matches reports whether an import path fits a pattern of importRules.
func matches(pattern, path string) bool {
	if !strings.Contains(pattern, ".com/") {
		pattern = module + "/" + pattern
	}
	below, tree := strings.CutSuffix(pattern, "/...")
	return path == below || tree && strings.HasPrefix(path, below+"/")
}
