package deploy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// beanstalkd inserts every job, and passes its body on.
func beanstalkd(t *testing.T) (address string, jobs <-chan string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	bodies := make(chan string, 100)
	go func() {
		conn, err := listener.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for {
			var size int
			if _, err := fmt.Fscanf(in, "put 0 0 60 %d\r\n", &size); err != nil {
				return
			}
			body := make([]byte, size+2)
			if _, err := io.ReadFull(in, body); err != nil {
				return
			}
			bodies <- string(body[:size])
			fmt.Fprint(conn, "INSERTED 1\r\n")
		}
	}()
	return listener.Addr().String(), bodies
}

func TestTheProgramOfThePluginDeliversToItsSink(t *testing.T) {
	t.Parallel()
	dir := copyPlugin(t)
	main, err := os.ReadFile(filepath.Join(dir, "main.go"))
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(main, []byte("\n")); n >= 20 {
		t.Errorf("main.go has %d lines, want under 20", n)
	}
	inPlugin(t, dir, "go", "build", "-o", "spillway", ".")

	address, jobs := beanstalkd(t)
	data, admin := redistest.FreeAddr(t), redistest.FreeAddr(t)
	cmd := exec.Command(filepath.Join(dir, "spillway"), "serve", "--listen", data, "--admin-listen", admin, "--linger", "50ms", "--sink", "beanstalk://"+address)
	var log bytes.Buffer
	cmd.Stderr = &log
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("the log:\n%s", &log)
		}
	})
	redistest.Until(t, 30*time.Second, "an event is accepted", func() bool {
		resp, err := http.Post("http://"+data+"/v1/default/kart-7", "application/json", strings.NewReader(`{"lap":3}`))
		if err != nil {
			return false
		}
		defer resp.Body.Close()
		return resp.StatusCode == http.StatusOK
	})
	select {
	case job := <-jobs:
		if !strings.Contains(job, `"partition":"kart-7"`) || !strings.HasSuffix(job, `"data":{"lap":3}}`) {
			t.Errorf("got the job %s", job)
		}
	case <-time.After(30 * time.Second):
		t.Error("no job within 30 s")
	}
}
