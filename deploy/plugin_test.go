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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// pluginFolder is the module of the tutorial.
const pluginFolder = "deploy/examples/plugin"

// copyPlugin makes a copy of the module that uses this repository instead of a release. A short run
// leaves out what builds it.
func copyPlugin(t *testing.T) (dir string) {
	t.Helper()
	if testing.Short() {
		t.Skip("another build of the program")
	}
	dir = t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(root, pluginFolder))); err != nil {
		t.Fatal(err)
	}
	repository, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "go.sum"), []byte(read(t, "go.sum")), 0o600); err != nil {
		t.Fatal(err)
	}
	inPlugin(t, dir, "go", "mod", "edit", "-require="+module+"@v0.0.0", "-replace="+module+"="+repository)
	return dir
}

// inPlugin runs a command in a copy of the module. It may download go.mod files that the
// build of the repository did not need.
func inPlugin(t *testing.T, dir, name string, args ...string) {
	t.Helper()
	if err := reads(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=-mod=mod")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
}

func TestThePluginOfTheTutorialPassesTheSuite(t *testing.T) {
	t.Parallel()
	dir := copyPlugin(t)
	inPlugin(t, dir, "go", "vet", "./...")
	inPlugin(t, dir, "go", "test", "-count=1", "./...")
}

func TestTheCodeOfTheTutorialIsThatOfThePlugin(t *testing.T) {
	t.Parallel()
	text := read(t, "drain/sink/sinktest/TUTORIAL.md")
	files := map[string]string{}
	for _, m := range regexp.MustCompile("(?s)\n`([a-z/_]+\\.go)`[^\n]*:\n\n```go\n(.*?)```\n").FindAllStringSubmatch(text, -1) {
		if files[m[1]] != "" {
			files[m[1]] += "\n"
		}
		files[m[1]] += m[2]
	}
	found := 0
	err := filepath.WalkDir(filepath.Join(root, pluginFolder), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".go" || d.Name() == "server_test.go" { // the fake is linked
			return err
		}
		found++
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		name, _ := filepath.Rel(filepath.Join(root, pluginFolder), path)
		if got := files[filepath.ToSlash(name)]; got != string(want) {
			t.Errorf("the tutorial's parts of %s are not the file; got\n%s", name, got)
		}
		return nil
	})
	if err != nil || found != len(files) {
		t.Errorf("%d files of the plugin, %d in the tutorial, %v", found, len(files), err)
	}
}

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
