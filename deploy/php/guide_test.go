//go:build php

package php

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

// reader is somebody in the folder of an application, with a Redis of its own and this repository beside it.
type reader struct {
	*project
	t       *testing.T
	address string   // of Redis
	env     []string // where serve listens, and what asks it finds it
	out     string   // the file with all that the commands print
	ports   *strings.Replacer
}

func newReader(t *testing.T, f flavor) *reader {
	t.Helper()
	p := open(t, f)
	opt, err := redis.ParseURL(redistest.Start(t).URL())
	must(t, err)
	p.redis = redis.NewClient(opt)
	t.Cleanup(func() { _ = p.redis.Close() })
	data, err := proc.FreeAddr()
	must(t, err)
	admin, err := proc.FreeAddr()
	must(t, err)
	root, err := filepath.Abs("../..")
	must(t, err)
	must(t, os.Symlink(root, filepath.Join(filepath.Dir(p.dir), "spillway")))
	// What an application has in its .env, which the children of spillway work do not inherit.
	var env bytes.Buffer
	for _, name := range []string{"LIBRARY", "SEEN", "REDIS_PORT"} {
		value := opt.Addr[strings.LastIndexByte(opt.Addr, ':')+1:]
		for _, set := range p.env {
			if text, ok := strings.CutPrefix(set, name+"="); ok && name != "REDIS_PORT" {
				value = text
			}
		}
		fmt.Fprintf(&env, "<?php putenv('%s=%s') ?>", name, value)
	}
	autoload := filepath.Join(p.dir, "vendor/autoload.php")
	text, err := os.ReadFile(autoload)
	must(t, err)
	must(t, os.WriteFile(autoload, append(env.Bytes(), text...), 0o600))
	return &reader{project: p, t: t, address: opt.Addr, out: filepath.Join(t.TempDir(), "out"),
		env: append(os.Environ(), "PATH="+filepath.Dir(binary)+":"+os.Getenv("PATH"), "SPILLWAY_LISTEN="+data, "SPILLWAY_ADMIN_LISTEN="+admin,
			"SPILLWAY_SERVER=http://"+data, "SPILLWAY_ADMIN=http://"+admin),
		ports: strings.NewReplacer("127.0.0.1:6379", opt.Addr, "127.0.0.1:8080", data, "127.0.0.1:8081", admin)}
}

// write makes a file of the application.
func (r *reader) write(path, text string) {
	r.t.Helper()
	path = filepath.Join(r.dir, path)
	must(r.t, os.MkdirAll(filepath.Dir(path), 0o700))
	must(r.t, os.WriteFile(path, []byte(r.ports.Replace(text)), 0o600))
}

// paste has a shell run commands. What it starts in the background lives until the test ends.
func (r *reader) paste(commands string) {
	r.t.Helper()
	out, err := os.Create(r.out)
	must(r.t, err)
	defer func() { _ = out.Close() }()
	cmd := exec.Command("bash", "-euo", "pipefail", "-c", r.ports.Replace(commands))
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = r.dir, r.env, out, out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	must(r.t, cmd.Start())
	r.t.Cleanup(func() {
		for sig, group := syscall.SIGTERM, -cmd.Process.Pid; !errors.Is(syscall.Kill(group, sig), syscall.ESRCH); sig = 0 {
			time.Sleep(20 * time.Millisecond)
		}
		if r.t.Failed() {
			r.t.Log(r.printed())
		}
	})
	if err := cmd.Wait(); err != nil {
		r.t.Fatalf("the commands end with %v", err)
	}
}

func (r *reader) printed() string {
	r.t.Helper()
	text, err := os.ReadFile(r.out)
	must(r.t, err)
	return string(text)
}

// awaits waits until the commands have printed something.
func (r *reader) awaits(text string) {
	r.t.Helper()
	redistest.Until(r.t, patience, "the commands print "+text, func() bool { return strings.Contains(r.printed(), text) })
}

var block = regexp.MustCompile("(?ms)^```(sh|yaml|php)\n(.*?)^```")

// Who pastes the commands of deploy/PHP.md, and its files, in the folder of an application sees what it says.
func TestTheGuideWorksAsPasted(t *testing.T) {
	t.Parallel()
	guide, err := os.ReadFile("../PHP.md")
	must(t, err)
	for heading, tt := range map[string]struct {
		flavor
		job    string // the file that the section shows
		prints []string
		reads  string // PHP, what a worker of the library reads as the restart signal
	}{
		"Beside Laravel": {artisan, "app/Jobs/Welcome.php", []string{`"job":"App\\Jobs\\Welcome@fire"`, "welcome, ada", "welcome, grace", "0 jobs are ready and would be moved"},
			`require "vendor/autoload.php"; $app = require "bootstrap/app.php"; echo $app["cache"]->driver()->get("illuminate:queue:restart");`},
		"Beside ThinkPHP": {think3, "app/job/Mail.php", []string{"mail to ada", "mail to grace"}, ""},
	} {
		t.Run(heading, func(t *testing.T) {
			t.Parallel()
			r := newReader(t, tt.flavor)
			_, section, _ := strings.Cut(string(guide), "\n## "+heading+"\n")
			section, _, _ = strings.Cut(section, "\n## ")
			if !strings.Contains(section, "`"+tt.job+"`") {
				t.Errorf("the section does not name %s", tt.job)
			}
			must(t, os.RemoveAll(filepath.Join(r.dir, "app/Console/Commands/SpillwayChild.php")))
			var commands strings.Builder
			for _, b := range block.FindAllStringSubmatch(section, -1) {
				switch text := b[2]; b[1] {
				case "yaml":
					r.write("spillway.yaml", text)
				case "php":
					r.write(tt.job, text)
				default:
					commands.WriteString(text)
				}
			}
			r.paste(commands.String())
			for _, text := range tt.prints {
				r.awaits(text)
			}
			redistest.Until(t, patience, "the last job is acked", func() bool { // else its worker waits for the service when both stop
				return r.redis.Exists(t.Context(), fmt.Sprintf(r.base, "default")+":reserved").Val() == 0
			})
			if strings.Contains(r.printed(), "clock") {
				t.Errorf("a warning:\n%s", r.printed())
			}
			if tt.reads != "" {
				if out, err := r.php(t, "-r", tt.reads).CombinedOutput(); err != nil || number(string(out)) == 0 {
					t.Errorf("Laravel reads %q as the restart signal, %v", out, err)
				}
			}
		})
	}
}

// The example of a configuration beside an application of illuminate's parts: Laravel's worker and ours at once.
func TestTheExampleServesAnApplicationOfIlluminatesParts(t *testing.T) {
	t.Parallel()
	r := newReader(t, laravel)
	for _, file := range []string{"examples/laravel.yaml", "php/laravel-child.php"} {
		text, err := os.ReadFile(filepath.Join("..", file))
		must(t, err)
		r.write("deploy/"+file, string(text))
	}
	r.queue = "default"
	r.project.env = append(r.project.env, "REDIS_PORT="+r.address[strings.LastIndexByte(r.address, ':')+1:])
	const jobs = 40
	r.push(t, pushed{Class: "Note", Data: map[string]any{"acts": []string{"delete"}}, Count: jobs})
	r.push(t, note("throw:no"))
	r.paste(`spillway serve --config deploy/examples/laravel.yaml &
until curl -sf http://127.0.0.1:8081/readyz; do sleep 0.1; done
spillway jobs move shop default --to orders/default --dry-run
php queue-work.php & spillway work shop default --children 4 -- php deploy/php/laravel-child.php &
until [ "$(redis-cli -p ` + r.address[strings.LastIndexByte(r.address, ':')+1:] + ` exists laravel_database_queues:default laravel_database_queues:default:reserved)" = 0 ]; do sleep 0.1; done
spillway jobs ls shop
spillway jobs dead shop default
`)
	r.awaits(fmt.Sprintf("%d jobs are ready and would be moved", jobs+1))
	if n := r.count(t, ran); n != jobs+1 {
		t.Errorf("%d jobs ran, of %d", n, jobs+1)
	}
	if n := r.count(t, failed); n != 1 {
		t.Errorf("failed() ran %d times", n)
	}
	if dead := r.redis.ZCard(t.Context(), "sw:php:laravel_database_queues:default:dead").Val(); (dead == 1) != strings.Contains(r.printed(), "buried") {
		t.Errorf("%d dead letters; printed\n%s", dead, r.printed())
	}
}
