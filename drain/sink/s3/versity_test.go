//go:build sinks

package s3

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// A gateway is a versitygw, an S3 server on a folder: objects are its files.
type gateway struct {
	addr, data, meta string
	cmd              *exec.Cmd
	done             chan struct{}
}

func startGateway(t testing.TB) *gateway {
	t.Helper()
	g := &gateway{addr: redistest.FreeAddr(t), data: t.TempDir(), meta: t.TempDir()}
	if err := os.Mkdir(filepath.Join(g.data, "events"), 0o755); err != nil {
		t.Fatal(err)
	}
	g.launch(t)
	t.Cleanup(g.kill)
	return g
}

func (g *gateway) launch(t testing.TB) {
	t.Helper()
	// The sidecar is for temporary folders without extended attributes.
	cmd := exec.Command("versitygw", "--port", g.addr, "--quiet", "posix", "--sidecar", g.meta, g.data)
	cmd.Env = []string{"ROOT_ACCESS_KEY=KEY", "ROOT_SECRET_KEY=" + secret}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatalf("start versitygw (make test-sinks builds it): %v", err)
	}
	done := make(chan struct{})
	go func() { _ = cmd.Wait(); close(done) }()
	g.cmd, g.done = cmd, done
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !g.answers() {
		select {
		case <-done:
			t.Fatalf("versitygw ended: %s", &log)
		case <-t.Context().Done():
			t.Fatal("versitygw does not answer")
		case <-tick.C:
		}
	}
}

// answers reports whether a request gets one, within 200 ms.
func (g *gateway) answers() bool {
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 200 * time.Millisecond}
	resp, err := client.Get("http://" + g.addr + "/")
	if err == nil {
		resp.Body.Close()
	}
	return err == nil
}

// kill ends it with SIGKILL. It may come twice.
func (g *gateway) kill() {
	_ = g.cmd.Process.Kill()
	<-g.done
}

func (g *gateway) signal(t testing.TB, sig syscall.Signal) {
	if err := g.cmd.Process.Signal(sig); err != nil {
		t.Error(err)
	}
}

// objects are the files of the bucket, oldest first.
func (g *gateway) objects(t testing.TB) (list []stored) {
	t.Helper()
	age := map[string]time.Time{}
	err := filepath.WalkDir(filepath.Join(g.data, "events", "in"), func(path string, entry fs.DirEntry, err error) error {
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		body, err := os.ReadFile(path)
		name := strings.TrimPrefix(path, g.data)
		age[name] = info.ModTime()
		list = append(list, stored{path: name, body: body})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.SortFunc(list, func(a, b stored) int { return age[a.path].Compare(age[b.path]) })
	return list
}

func TestConformsOnARealServer(t *testing.T) {
	t.Parallel()
	for name, query := range map[string]string{"gzip": "", "zstd by partition": "&compression=zstd&per=partition"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			sinktest.Run(t, sinktest.Harness{New: func(t testing.TB) sinktest.Fixture {
				g := startGateway(t)
				bucket := filepath.Join(g.data, "events")
				return sinktest.Fixture{
					Sink:     sinkOn(t, g.addr, query),
					Received: func() ([]sinktest.Record, error) { return lines(g.objects(t)) },
					Stall: func() func() {
						g.signal(t, syscall.SIGSTOP)
						for g.answers() { // its threads stop one by one
						}
						return func() { g.signal(t, syscall.SIGCONT) }
					},
					Faults: []sinktest.Fault{
						{Name: "killed", Start: func() func() {
							g.kill()
							return func() { g.launch(t) }
						}},
						{Name: "no bucket", Start: func() func() {
							if err := os.Rename(bucket, bucket+"-away"); err != nil {
								t.Error(err)
							}
							return func() {
								if err := os.Rename(bucket+"-away", bucket); err != nil {
									t.Error(err)
								}
							}
						}},
					},
				}
			}})
		})
	}
}

func TestARealServerStoresARepeatedWriteOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	s := sinkOn(t, g.addr, "")
	for attempt := range 3 {
		a, b := batch("a", 1, 5), batch("b", 1, 5)
		a.Attempt, b.Attempt = attempt+1, attempt+1
		if err := s.Write(t.Context(), []*sink.Batch{a, b}); err != nil {
			t.Fatal(err)
		}
	}
	if got := g.objects(t); len(got) != 1 || s.overwrites.Load() {
		t.Errorf("got %d objects, replaced: %t", len(got), s.overwrites.Load())
	} else if text, err := lines(got); err != nil || len(text) != 10 || text[0].Attempt != 1 {
		t.Errorf("got %d lines, %v", len(text), err)
	}
}

// The server is killed while many Writes run; each is repeated until it succeeds, as
// the drain does.
func TestAKilledServerEndsWithEachObjectOnce(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	s := sinkOn(t, g.addr, "")
	const writes, size = 60, 100
	killed := make(chan struct{})
	results := make(chan error, writes)
	turns := make(chan struct{}, 4)
	for i := range writes {
		go func() {
			turns <- struct{}{}
			defer func() { <-turns }()
			b := batch(fmt.Sprintf("p%d", i), 1, size)
			err := s.Write(t.Context(), []*sink.Batch{b})
			if err != nil {
				<-killed // it is up again
				err = s.Write(t.Context(), []*sink.Batch{b})
			}
			results <- err
		}()
	}
	for range writes / 3 {
		if err := <-results; err != nil {
			t.Fatal(err)
		}
	}
	g.kill()
	g.launch(t)
	close(killed)
	for range writes - writes/3 {
		if err := <-results; err != nil {
			t.Error(err)
		}
	}
	objects := g.objects(t)
	text, err := lines(objects)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, r := range text {
		times[fmt.Sprint(r.Partition, " ", r.Seq)]++
	}
	if len(objects) != writes || len(text) != writes*size || len(times) != writes*size {
		t.Errorf("got %d objects, %d lines, %d entries", len(objects), len(text), len(times))
	}
}

func TestARealServerRejectsAWrongSecretAndBucket(t *testing.T) {
	t.Parallel()
	g := startGateway(t)
	s := sinkOn(t, g.addr, "")
	rejected := func(want string) {
		t.Helper()
		if err := s.Write(t.Context(), []*sink.Batch{batch("p", 1, 1)}); !errors.Is(err, sink.ErrNotConnected) || !strings.HasSuffix(err.Error(), "put to "+g.addr+want) {
			t.Errorf("write: got %v, want %s", err, want)
		}
		if err := s.Open(t.Context()); err == nil || err.Error() != "list at "+g.addr+want {
			t.Errorf("open: got %v, want %s", err, want)
		}
	}
	if err := s.Open(t.Context()); err != nil {
		t.Error(err)
	}
	s.secret = "an0ther"
	rejected(": answered 403 (SignatureDoesNotMatch)")
	s.secret, s.bucket, s.base = secret, "/another", "/another/"
	rejected(": answered 404 (NoSuchBucket)")
}
