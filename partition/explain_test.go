package partition_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// explained is the error of a Check within the time that the service gives it.
func explained(t *testing.T, url string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	_, err := open(t, url, nil).Check(ctx)
	if err == nil {
		t.Fatalf("%s: the check passed", url)
	}
	return err
}

func TestAnUnusableServerIsNamedForWhatItIs(t *testing.T) {
	t.Parallel()
	web := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(web.Close)
	secure := httptest.NewUnstartedServer(http.NotFoundHandler())
	secure.Config.ErrorLog = log.New(io.Discard, "", 0)
	secure.StartTLS()
	t.Cleanup(secure.Close)
	plain := redistest.Start(t)
	locked := redistest.Start(t, "--requirepass", "secret")
	_, port, _ := net.SplitHostPort(plain.Addr)
	replica := redistest.Start(t, "--replicaof", "127.0.0.1", port)
	stopped := redistest.Start(t)
	stopped.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { stopped.Signal(syscall.SIGCONT) })
	paused := redistest.Start(t)
	// The subtests may wait for minutes until they run.
	if err := paused.Client().Do(t.Context(), "client", "pause", 3_600_000, "ALL").Err(); err != nil {
		t.Fatal(err)
	}
	free := redistest.FreeAddr(t)
	for name, c := range map[string]struct {
		url, addr string
		words     []string
	}{
		"HTTP":               {"redis://" + web.Listener.Addr().String(), web.Listener.Addr().String(), []string{"speaks HTTP"}},
		"TLS to plain":       {"rediss://" + plain.Addr, plain.Addr, []string{"plain text", "write redis://"}},
		"plain to TLS":       {"redis://" + secure.Listener.Addr().String(), secure.Listener.Addr().String(), []string{"speaks TLS", "write rediss://"}},
		"foreign CA":         {"rediss://" + secure.Listener.Addr().String(), secure.Listener.Addr().String(), []string{"does not trust"}},
		"no password":        {locked.URL(), locked.Addr, []string{"wants a password"}},
		"wrong password":     {"redis://:hunter2@" + locked.Addr, locked.Addr, []string{"rejects the user or the password"}},
		"missing user":       {"redis://me:hunter2@" + locked.Addr, locked.Addr, []string{"rejects the user or the password"}},
		"replica":            {replica.URL(), replica.Addr, []string{"is a replica", "primary"}},
		"stopped":            {stopped.URL(), stopped.Addr, []string{"accepts connections but does not answer", "SIGSTOP"}},
		"paused":             {paused.URL(), paused.Addr, []string{"accepts connections but does not answer", "CLIENT PAUSE"}},
		"nobody":             {"redis://" + free, free, []string{"refuses connections"}},
		"no such name":       {"redis://redis.invalid:6379", "redis.invalid:6379", []string{"found by its name"}},
		"cluster to one":     {"redis-cluster://" + plain.Addr, plain.Addr, []string{"no cluster", "write redis://"}},
		"sentinel to a data": {"redis-sentinel://" + plain.Addr + "/mymaster", plain.Addr, []string{"no sentinel", "26379"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var text string
			defer func() {
				if t.Failed() {
					t.Log(text)
				}
			}()
			// A server that takes longer than its look is first said to be silent.
			redistest.Until(t, 20*time.Second, fmt.Sprint("it says ", c.words, " of ", c.addr), func() bool {
				text = explained(t, c.url).Error()
				return !slices.ContainsFunc(append(c.words, "redis at "+c.addr+" "), func(want string) bool { return !strings.Contains(text, want) })
			})
			if strings.Contains(text, "hunter2") {
				t.Errorf("the password is in: %s", text)
			}
		})
	}
}

// versionProxy makes a Redis tell another version.
func versionProxy(t *testing.T, target, version string) (addr string) {
	t.Helper()
	addr = redistest.FreeAddr(t)
	told := regexp.MustCompile(`redis_version:\d\.\d`)
	redistest.Forward(t, addr, target, func(client, server net.Conn) {
		var requests sync.WaitGroup
		requests.Go(func() { defer server.Close(); _, _ = io.Copy(server, client) })
		defer requests.Wait()
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil {
				return
			}
			if _, err := client.Write(told.ReplaceAll(bytes.Clone(buf[:n]), []byte("redis_version:"+version))); err != nil {
				return
			}
		}
	})
	return addr
}

func TestAVersionBeforeSevenIsRejected(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t)
	addr := versionProxy(t, server.Addr, "6.2")
	s := open(t, "redis://"+addr, nil)
	_, err := s.Check(t.Context())
	rejected(t, err, "redis at "+addr, "version 6.2", "needs 7.0 or newer")
	if err := s.produce("kart", "x"); err == nil {
		t.Error("a produce ran on it")
	}
	_ = s.Close()
	newer := open(t, "redis://"+versionProxy(t, server.Addr, "9.9"), nil)
	if _, err := newer.Check(t.Context()); err != nil {
		t.Errorf("a newer version: %v", err)
	}
	_ = newer.Close()
}
