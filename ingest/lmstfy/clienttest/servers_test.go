package clienttest

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// patience bounds the start of a server, which takes a second on an idle machine.
const patience = 30 * time.Second

// server is a running Spillway or lmstfy.
type server struct {
	t           testing.TB
	name        string
	data, admin string // host:port
	token       string // of the namespace ns
}

// built builds a program once for all tests.
func built(name, pkg, dir string) func(testing.TB) string {
	once := sync.OnceValues(func() (string, error) {
		out := filepath.Join(bin, name)
		cmd := exec.Command("go", "build", "-o", out, pkg)
		cmd.Dir = dir
		if text, err := cmd.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, text)
		}
		return out, nil
	})
	return func(t testing.TB) string {
		t.Helper()
		out, err := once()
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
}

var (
	bin      string // of the programs that the tests build
	spillway = built("spillway", "./cmd/spillway", "../../..")
	lmstfy   = built("lmstfy", "github.com/bitleak/lmstfy/server", ".")
)

func TestMain(m *testing.M) {
	os.Exit(func() int {
		dir, err := os.MkdirTemp("", "clienttest")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
		return m.Run()
	}())
}

// startSpillway starts `spillway serve --lmstfy` on a redis-server of its own.
func startSpillway(t testing.TB) *server {
	redis := redistest.Start(t, "--appendonly", "yes")
	s := &server{t: t, name: "spillway", data: redistest.FreeAddr(t), admin: redistest.FreeAddr(t)}
	s.start(spillway(t), "serve", "--lmstfy", "--redis", redis.URL(), "--sink", "null:", "--listen", s.data, "--admin-listen", s.admin, "--log-level", "warn")
	return s
}

// startLmstfy starts a real lmstfy on a redis-server of its own.
func startLmstfy(t testing.TB) *server {
	redis := redistest.Start(t, "--appendonly", "yes")
	s := &server{t: t, name: "lmstfy", data: redistest.FreeAddr(t), admin: redistest.FreeAddr(t)}
	_, port, _ := strings.Cut(s.data, ":")
	_, adminPort, _ := strings.Cut(s.admin, ":")
	file := filepath.Join(t.TempDir(), "lmstfy.toml")
	config := fmt.Sprintf(`
Host = "127.0.0.1"
Port = %s
AdminHost = "127.0.0.1"
AdminPort = %s
LogLevel = "error"
LogDir = %q
[AdminRedis]
Addr = %[4]q
[Pool.default]
Addr = %[4]q
`, port, adminPort, t.TempDir(), redis.Addr)
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s.start(lmstfy(t), "-c", file)
	return s
}

// start runs a program until the test ends, and makes the token.
func (s *server) start(path string, args ...string) {
	s.t.Helper()
	p, err := proc.Start(s.t.TempDir(), s.name, path, args...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(p.Stop)
	ctx, cancel := context.WithTimeout(s.t.Context(), patience)
	defer cancel()
	if err := p.Await(ctx, s.name, func(context.Context) error {
		s.token = s.makeToken("ns")
		if s.token == "" {
			return fmt.Errorf("no token yet")
		}
		return nil
	}); err != nil {
		s.t.Fatal(err)
	}
	// A process uses a new token within a second.
	redistest.Until(s.t, patience, "the token is admitted", func() bool {
		r, err := http.Get("http://" + s.data + "/api/ns/nothing/peek?token=" + s.token)
		if err != nil {
			return false
		}
		defer r.Body.Close()
		return r.StatusCode == http.StatusNotFound
	})
}

// makeToken makes a token with lmstfy's admin API; "" when the server does not answer yet.
func (s *server) makeToken(namespace string) string {
	r, err := http.PostForm("http://"+s.admin+"/token/"+namespace, url.Values{"description": {"a test"}})
	if err != nil {
		return ""
	}
	defer r.Body.Close()
	var made struct{ Token string }
	if json.NewDecoder(r.Body).Decode(&made) != nil || r.StatusCode != http.StatusCreated {
		return ""
	}
	return made.Token
}

// port is the port of the data port.
func (s *server) port() int {
	_, text, _ := strings.Cut(s.data, ":")
	n, err := strconv.Atoi(text)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// do sends a request by hand, with the token of ns unless headers have one.
func (s *server) do(addr, method, path, body string, header http.Header) (status int, answer string, headers http.Header) {
	s.t.Helper()
	req, err := http.NewRequest(method, "http://"+addr, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.URL.Opaque, req.URL.RawQuery, _ = strings.Cut(path, "?")
	req.Header = header.Clone()
	r, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatalf("%s: %s %s: %v", s.name, method, path, err)
	}
	defer r.Body.Close()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		s.t.Fatalf("%s: %s %s: %v", s.name, method, path, err)
	}
	return r.StatusCode, string(text), r.Header
}
