// Package process runs programs as children with bounds: each in a process group of its own, of
// which nothing is left when its Wait returns, for a limited time, and with a bound on what it may
// write. On Linux a child dies with this process, however that ends.
package process

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// A Command is a program to run, without a shell.
type Command struct {
	Args  []string // an absolute path, and the arguments
	Env   []string // all of its environment, as NAME=value
	Dir   string   // its working directory; empty: that of this process
	User  *User    // whom it runs as; nil: as this process
	Nice  int      // its priority, -20 to 19; 0: that of this process
	Input []byte   // for Run: its stdin, which it need not read
	// MaxStdout and MaxStderr are, for Run, how many bytes of its output are kept. What it writes
	// beyond that is read, so that it goes on, and thrown away.
	MaxStdout, MaxStderr int64
}

// A User is whom a child runs as.
type User struct {
	UID, GID uint32
	Groups   []uint32
}

// LookUp finds a user by name.
func LookUp(name string) (*User, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	groups, err := u.GroupIds()
	if err != nil {
		return nil, err
	}
	var ids []uint32
	for _, text := range append([]string{u.Uid, u.Gid}, groups...) {
		id, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return nil, err // not on Unix
		}
		ids = append(ids, uint32(id))
	}
	return &User{UID: ids[0], GID: ids[1], Groups: ids[2:]}, nil
}

// Variables are those of this process that every child gets. All others stay here: there may be
// secrets among them.
var Variables = []string{"HOME", "LANG", "LC_ALL", "PATH", "TMPDIR", "TZ", "USER"}

// own is what the names of variables begin with that no child gets. A token is one of them, and a
// child that calls spillway itself must not take over the others.
const own = "SPILLWAY_"

// Environ is the environment of a child: of environ what every child gets, and what more names, as
// NAME, NAME* or NAME=value.
func Environ(environ []string, more ...string) (env []string, err error) {
	names := slices.Clone(Variables)
	for _, m := range more {
		name, _, set := strings.Cut(m, "=")
		if _, err := path.Match(name, ""); err != nil || name == "" ||
			strings.HasPrefix(name, own) {
			return nil, fmt.Errorf("%q: want a name, such as APP_ENV, APP_* or APP_ENV=production, but none that begins with %s", name, own)
		}
		if set {
			env = append(env, m)
		} else {
			names = append(names, name)
		}
	}
	for _, variable := range environ {
		name, _, _ := strings.Cut(variable, "=")
		wanted := func(pattern string) bool { ok, _ := path.Match(pattern, name); return ok }
		if slices.ContainsFunc(names, wanted) && !strings.HasPrefix(name, own) {
			env = append(env, variable)
		}
	}
	return env, nil
}

// Output is what became of a Command that was Run.
type Output struct {
	Started        bool // it ran; without that the error says why it could not
	Stdout, Stderr []byte
}

// A Child is a Command that was started. The caller reads Stdout, Stderr and Extra until they
// end, calls Wait, and then Close.
type Child struct {
	Stdin                 *os.File // what it reads
	Stdout, Stderr, Extra *Pipe    // what it writes; Extra is its descriptor 3, or nil
	Unread                int      // bytes of its stdin that it has not read, after Wait; Linux only

	cmd   *exec.Cmd
	mu    sync.Mutex
	ended bool // nothing of its group is left, and its number may be another's
}

// lateOutput bounds the wait for output after the process has ended. Only a process that left
// the group can still hold the pipes.
const lateOutput = 100 * time.Millisecond

// PID is the number of the process, and of its group.
func (c *Child) PID() int { return c.cmd.Process.Pid }

// Wait waits for the end of the process, and kills what is left of its group. The error is
// exec's. Reads of what it wrote end soon afterwards.
func (c *Child) Wait() error {
	err := c.cmd.Wait()
	c.Kill() // what it left behind, mostly nothing
	c.mu.Lock()
	c.ended = true
	c.mu.Unlock()
	c.Unread = unread(c.Stdin)
	_ = c.Stdin.Close()
	for _, f := range c.outputs() {
		_ = f.file.SetReadDeadline(time.Now().Add(lateOutput))
	}
	return err
}

// Close closes what is still open. A second Close is harmless.
func (c *Child) Close() {
	_ = c.Stdin.Close()
	for _, f := range c.outputs() {
		_ = f.file.Close()
	}
}

func (c *Child) outputs() []*Pipe {
	return slices.DeleteFunc([]*Pipe{c.Stdout, c.Stderr, c.Extra}, func(p *Pipe) bool { return p == nil })
}

// A Pipe is read until all that write to it are gone, and soon after the end of the process in any case.
type Pipe struct {
	file *os.File
	late int // bytes that were read after the deadline
}

// pipeSize is the most that a pipe of ours holds: the default of Linux, see pipe(7); elsewhere it is no more.
const pipeSize = 64 << 10

// Read reads what was written before the process ended, however late this process comes to it.
func (p *Pipe) Read(to []byte) (int, error) {
	n, err := p.file.Read(to)
	if !errors.Is(err, os.ErrDeadlineExceeded) || p.late >= pipeSize {
		return n, err
	}
	if n = readNow(p.file, to[:min(len(to), pipeSize-p.late)]); n <= 0 {
		return 0, err
	}
	p.late += n
	return n, nil
}

// Run starts the command, gives it the input, and waits for its end or that of ctx. Then no
// process of its group is left. The error is exec's.
func (c Command) Run(ctx context.Context) (o Output, err error) {
	if err := ctx.Err(); err != nil {
		return o, err
	}
	child, err := c.Start(false)
	if err != nil {
		return o, err
	}
	o.Started = true
	defer child.Close()
	defer context.AfterFunc(ctx, child.Kill)()
	var copying sync.WaitGroup
	copying.Go(func() {
		// A process need not read its input: its exit code counts.
		_, _ = child.Stdin.Write(c.Input)
		_ = child.Stdin.Close()
	})
	copying.Go(func() { o.Stdout = beginning(child.Stdout, c.MaxStdout) })
	copying.Go(func() { o.Stderr = beginning(child.Stderr, c.MaxStderr) })
	err = child.Wait()
	copying.Wait()
	return o, err
}

// beginning reads r to its end and returns the first max bytes.
func beginning(r io.Reader, max int64) []byte {
	kept, _ := io.ReadAll(io.LimitReader(r, max))
	_, _ = io.Copy(io.Discard, r)
	return kept
}
