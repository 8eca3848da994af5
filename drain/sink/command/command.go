// Package command is the sink "exec:", for plugins in any language: one process a
// batch, which gets the lines that file: writes on its stdin.
//
// Delivered means that the process exited with 0, whether or not it read its stdin. It
// is started without a shell, in the working directory of Spillway, with the variables
//
//	BATCH_ID         the same if and only if the same entries come again
//	BATCH_NAMESPACE
//	BATCH_PARTITION
//	BATCH_FIRST_SEQ  sequence of the first entry
//	BATCH_ENTRIES    how many lines there are; fewer arrive when Spillway is killed meanwhile
//	BATCH_ATTEMPT    1, and more on every further presentation
//
// and those that New is given. None begins with SPILLWAY_, so that the process can call
// spillway itself, which rejects variables that name no setting. Its exit code says what became
// of the batch:
//
//	0                 accepted, but for the lines that stdout names, see sink.ReadResults
//	65 (EX_DATAERR)   never to be accepted: one entry may be to blame, so the drain bisects;
//	                  stderr says why, in the dead letter
//	75 (EX_TEMPFAIL), to be tried again
//	and all others
//
// A process that a signal ends has an unknown outcome, and its batch is tried again.
// What the process leaves running in its process group is killed when it ends, and all
// of the group at the timeout.
package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/drain/process"
	"github.com/spillway-io/spillway/drain/sink"
)

// Exit codes with a meaning of their own, from sysexits.h.
const exitDataErr = 65

// maxStderr is more than a dead letter shows, see sink.WithDetail.
const maxStderr = 4 * sink.MaxDetail

// Sink runs a program for each batch.
type Sink struct {
	argv    []string
	environ []string
	name    string // of the program, for errors
}

// New returns what makes the sink of the URL "exec:", which runs argv with the
// variables environ, as NAME=value. The URL is not trusted with the command: it can
// come from a flag, argv comes from the configuration file.
func New(argv, environ []string) sink.Opener {
	return func(u *url.URL) (sink.Sink, error) {
		switch {
		case !process.Supported:
			return nil, errors.New("runs on Unix only")
		case u.String() != "exec:":
			return nil, errors.New(`takes nothing after "exec:": the command is sink_command of the namespace, in the file`)
		case len(argv) == 0:
			return nil, errors.New(
				`has no command: add to the namespace, in the file, sink_command: ["/usr/bin/python3", "/opt/plugin.py"]`,
			)
		case !filepath.IsAbs(argv[0]):
			return nil, fmt.Errorf("sink_command: %q is not an absolute path: write one such as /usr/bin/python3", argv[0])
		case slices.ContainsFunc(argv, func(arg string) bool { return strings.ContainsRune(arg, 0) }):
			return nil, errors.New("sink_command: an argument holds a NUL")
		}
		return &Sink{argv: argv, environ: environ, name: filepath.Base(argv[0])}, nil
	}
}

// Open is Check.
func (s *Sink) Open(context.Context) error { return s.Check() }

// Check finds a program that is not there or may not be run.
func (s *Sink) Check() error {
	if _, err := exec.LookPath(s.argv[0]); err != nil {
		return fmt.Errorf("open command: %w", err)
	}
	return nil
}

// Write runs the program with one batch, and returns when it has ended.
func (s *Sink) Write(ctx context.Context, batches []*sink.Batch) error {
	if len(batches) != 1 {
		return fmt.Errorf("exec takes one batch a call, not %d", len(batches))
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	b := batches[0]
	environ := append(slices.Clone(s.environ),
		"BATCH_ID="+b.ID(), "BATCH_NAMESPACE="+b.Namespace, "BATCH_PARTITION="+b.Partition,
		"BATCH_FIRST_SEQ="+strconv.FormatInt(b.FirstSeq, 10), "BATCH_ENTRIES="+strconv.Itoa(len(b.Entries)),
		"BATCH_ATTEMPT="+strconv.Itoa(b.Attempt))
	output, err := process.Command{
		Args:      s.argv,
		Env:       environ,
		Input:     sink.AppendBatch(nil, b),
		MaxStdout: sink.MaxResults + 1,
		MaxStderr: maxStderr,
	}.Run(ctx)
	var exit *exec.ExitError
	switch {
	case err == nil:
		failed, unreadable := sink.ReadResults(output.Stdout, len(b.Entries))
		switch {
		case unreadable != nil:
			return fmt.Errorf("run %s: exit status 0, but stdout begins %w", s.name, unreadable)
		case failed != nil:
			return failed
		}
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("run %s: %w", s.name, ctx.Err())
	case !output.Started:
		return fmt.Errorf("run %s: %w", s.name, sink.Unsent(err))
	case !errors.As(err, &exit):
		return fmt.Errorf("run %s: %w", s.name, err)
	}
	// The state alone: what the program writes can be the payload.
	err = sink.WithDetail(fmt.Errorf("run %s: %s", s.name, exit.ProcessState), output.Stderr)
	if exit.ExitCode() == exitDataErr {
		return sink.Permanent(err)
	}
	return err
}

// Close does nothing: no process outlives its Write.
func (s *Sink) Close(context.Context) error { return nil }

// Caps: as many processes as there are CPUs, for each costs some.
func (s *Sink) Caps() sink.Caps { return sink.Caps{MaxBatches: 1, MaxInFlight: runtime.GOMAXPROCS(0)} }
