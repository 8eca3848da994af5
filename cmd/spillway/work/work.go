// Package work has the command work: a supervisor of children that do the jobs of queues, in any
// language. It is a client of the service:
//
//	service ──claim──▶ client.Work ──job──▶ desk ──▶ slot ──line on stdin──▶ child
//	        ◀─settle──             ◀─error──        ◀──line on fd 3────
//
// The slots, one a child, take jobs at the desk, which tells the client how many to claim: one claim
// at a time gets them for all. Leases and settlements are the client's.
package work

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/process"
	"github.com/spillway-io/spillway/partition"
)

// Command runs children that do jobs.
type Command struct {
	Namespace string   `arg:"" help:"The namespace of the queues."`
	Queues    string   `arg:"" placeholder:"QUEUE,..." help:"Its queues, the most wanted first."`
	Program   []string `arg:"" placeholder:"PROGRAM" help:"The program and its arguments, after --. It is run without a shell."`

	Server string `name:"server" default:"http://127.0.0.1:8080" help:"URL of the service's data port."`
	Token  string `name:"token" placeholder:"TOKEN" help:"Token of the namespace. The environment variable SPILLWAY_TOKEN hides it from the process list."`

	Mode     string         `enum:"lines,each,self" default:"lines" help:"lines: children live long and get a line a job. each: a process a job, with the payload on stdin. self: children that get jobs themselves; they are only kept running."`
	Children string         `default:"1" help:"Children, 1 to 1000; or MIN..MAX, which adds one a second while the oldest ready job has waited for 1s, and ends them after 30s without."`
	TTR      time.Duration  `default:"60s" help:"Lease of a job. It is renewed each third of it while the child lives, so it bounds how late a job comes again when this process dies."`
	Timeout  time.Duration  `default:"60s" help:"Time for a job whose payload names none. Then the child is killed, with all of its process group. 0: no limit."`
	Term     time.Duration  `default:"0s" help:"Time between a SIGTERM at the timeout and the kill."`
	Tries    int            `default:"0" help:"Tries that the child is told for a job that has no limit."`
	Backoff  config.Backoff `default:"1s..10m" aliases:"delay" help:"How long a failed job waits: a random time up to MIN after the first attempt, doubled with each further one, MAX at most; where the child names no delay."`
	Rest     time.Duration  `default:"0s" help:"Pause of a child between jobs."`

	Memory       partition.Size `default:"0" help:"Memory (RSS) of a child, such as 128MiB. One with more is replaced after its job; one with twice as much is killed. 0: no limit."`
	MaxJobs      int            `default:"0" help:"Replace a child after about so many jobs. 0: no limit."`
	MaxTime      time.Duration  `default:"0s" help:"Replace a child after about so long. 0: no limit."`
	StartTimeout time.Duration  `default:"20s" help:"Time for a child to say that it is ready."`
	Drain        time.Duration  `default:"60s" help:"Time for jobs to end after SIGTERM. Then their children are killed, and the jobs come again."`

	Dir  string   `placeholder:"DIR" help:"Working directory of the children."`
	User string   `placeholder:"NAME" help:"User whom the children run as."`
	Nice int      `default:"0" help:"Priority of the children, -20 to 19."`
	Env  []string `sep:"none" placeholder:"NAME[=VALUE]" help:"A variable for the children, beside HOME, LANG, LC_ALL, PATH, TMPDIR, TZ and USER: a value, or the names of those to pass on, such as APP_*. Repeatable."`

	Hook     string `placeholder:"URL|PROGRAM" help:"What is told of events, as JSON: a URL gets a POST, a program its stdin; 1s at most. Jobs never wait for it."`
	Metrics  string `placeholder:"HOST:PORT" help:"Address for /metrics and /readyz, such as 127.0.0.1:9109."`
	Name     string `placeholder:"NAME" help:"Name of this worker in lists. Without it, host and process number."`
	LogLevel string `enum:"debug,info,warn,error" default:"info" help:"debug, info, warn or error."`

	Sleep  string `hidden:"" help:"Ignored: a claim waits for jobs."`
	Daemon bool   `hidden:"" help:"Ignored: children live long."`
	Force  bool   `hidden:"" help:"Ignored."`
}

// A Program is what a Command needs of the program that it is part of.
type Program struct {
	Version   string
	NewLogger func(stderr io.Writer, level string) *zap.Logger
}

const (
	maxChildren = 1000
	maxQueues   = 64
)

// settings are the checked flags of a Command.
type settings struct {
	*Command
	queues      []string
	least, most int // children
	program     process.Command
}

// check reads the flags. environ is that of this process.
func (c *Command) check(environ []string) (*settings, error) {
	s := &settings{Command: c, queues: strings.Split(c.Queues, ",")}
	low, high, ranged := strings.Cut(c.Children, "..")
	if !ranged {
		high = low
	}
	least, errLeast := strconv.Atoi(low)
	most, errMost := strconv.Atoi(high)
	s.least, s.most = least, most
	if errLeast != nil || errMost != nil || s.least < 1 || s.most < s.least ||
		s.most > maxChildren {
		return nil, fmt.Errorf("children: %q is not usable: want 1 to %d, or a range such as 2..16",
			c.Children, maxChildren)
	}
	switch {
	case len(s.queues) > maxQueues || slices.Contains(s.queues, ""):
		return nil, fmt.Errorf("queues: %q: want 1 to %d names, separated by commas",
			c.Queues, maxQueues)
	case c.TTR < time.Second || c.TTR > 30*24*time.Hour:
		return nil, fmt.Errorf("ttr: %s is not usable: want 1s to 720h", c.TTR)
	case min(c.Timeout, c.Term, c.Rest, c.MaxTime, c.StartTimeout, c.Drain) < 0 ||
		min(c.MaxJobs, c.Tries) < 0:
		return nil, errors.New("timeout, term, rest, max_time, start_timeout, drain, max_jobs or tries is negative: want 0 or more")
	case c.Nice < -20 || c.Nice > 19:
		return nil, fmt.Errorf("nice: %d is not usable: want -20 to 19", c.Nice)
	}
	if c.Metrics != "" {
		if _, _, err := net.SplitHostPort(c.Metrics); err != nil {
			return nil, fmt.Errorf("metrics: %q: want an address such as 127.0.0.1:9109", c.Metrics)
		}
	}
	if c.Name == "" {
		host, _ := os.Hostname()
		c.Name = fmt.Sprintf("%.50s-%d", host, os.Getpid())
	}
	if !partition.ValidNamespace(c.Name) {
		return nil, fmt.Errorf("name: %q: want letters, digits, ._- up to 64, the first a letter or digit", c.Name)
	}
	s.program = process.Command{Args: slices.Clone(c.Program), Dir: c.Dir, Nice: c.Nice}
	var err error
	if c.User != "" {
		if s.program.User, err = process.LookUp(c.User); err != nil {
			return nil, fmt.Errorf("user: %w", err)
		}
	}
	if s.program.Env, err = process.Environ(environ, c.Env...); err != nil {
		return nil, fmt.Errorf("env: %w", err)
	}
	if !strings.Contains(c.Program[0], "/") {
		if s.program.Args[0], err = exec.LookPath(c.Program[0]); err != nil {
			return nil, fmt.Errorf("program: %w", err)
		}
	}
	return s, nil
}

// timeout is how long a job may take.
func (s *settings) timeout(t *task) time.Duration {
	if t.PHP != nil && t.PHP.TimeoutMS > 0 {
		return time.Duration(t.PHP.TimeoutMS) * time.Millisecond
	}
	return s.Timeout
}

// tries is how many tries a job has; 0: no limit.
func (s *settings) tries(t *task) int { return cmp.Or(t.Tries, s.Tries) }

// backoff is how long a job waits after an attempt that failed: a random time (full jitter).
func (s *settings) backoff(t *task) time.Duration {
	return guard.Backoff(s.Backoff.Base, s.Backoff.Max, max(t.Attempt, 1), rand.Float64())
}

// Run works until ctx ends, and then until the jobs that have begun have ended, or --drain is over.
// Its error says why the service rejects its claims.
func (c *Command) Run(ctx context.Context, p config.Process, program Program) error {
	if _, err := config.FromEnv(config.SettingsOf(c), p); err != nil {
		return err
	}
	if !process.Supported {
		return errors.New("work: runs on Unix only")
	}
	s, err := c.check(p.Environ)
	if err != nil {
		return config.Usage(fmt.Errorf("work: %w", err))
	}
	if err := process.Hide(); err != nil {
		return fmt.Errorf("work: hide the token from children: %w", err)
	}
	w, err := newWorker(s, program.Version, program.NewLogger(p.Stderr, c.LogLevel))
	if err != nil {
		return config.Usage(fmt.Errorf("work: %w", err))
	}
	if err := w.run(ctx); err != nil {
		return fmt.Errorf("work: %w", err)
	}
	return nil
}
