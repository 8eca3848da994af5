// Spillway is a batch-oriented, per-partition, fixed-length buffer service on
// Redis. `spillway serve` runs it; `spillway --help` lists the rest.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
)

// Exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1 // it was asked properly and did not work out
	exitUsage   = 2 // flags, environment or file are wrong; nothing was started
)

// cli is the command line. Flags live with their commands.
type cli struct {
	Serve   serveCmd   `cmd:"" help:"Run the service: ingest, buffer and drain."`
	Report  reportCmd  `cmd:"" help:"Send lines from a file or stdin to a running service."`
	Demo    demoCmd    `cmd:"" help:"Start on the embedded store and feed it a few games' events."`
	Bench   benchCmd   `cmd:"" help:"Load a service and show how it felt."`
	Config  configCmd  `cmd:"" help:"Check or print the configuration that serve would use."`
	Token   tokenCmd   `cmd:"" help:"Make a token, and the hash of it that the configuration wants."`
	Version versionCmd `cmd:"" help:"Print the version."`
}

const description = `Keeps the newest N events per partition on Redis and hands them, fresh and in batches, to sinks.

Every flag is also an environment variable (--max-age is SPILLWAY_MAX_AGE), and those of serve
a key of its file (max_age). A flag beats the environment, which beats the file.`

// process is the surroundings of a command, so that a test can be one.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookupEnv      func(string) (string, bool)
	environ        []string        // what lookupEnv looks in, as NAME=value
	given          map[string]bool // keys of the flags on the command line
}

// usageError is a mistake in what the operator wrote.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, os.Args[1:], process{
			stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, lookupEnv: os.LookupEnv, environ: os.Environ(),
		})
	}()
	select {
	case code := <-done:
		os.Exit(code)
	case <-signals:
		stop()
	}
	// The first signal asks, the second insists: whoever sends it twice knows
	// what an orderly end would have saved. What comes at once is the same signal
	// by another way: to the process group, and passed on by make.
	for once := time.After(sameSignal); ; {
		select {
		case code := <-done:
			os.Exit(code)
		case <-once:
			once = nil
			continue
		case <-signals:
			if once != nil {
				continue
			}
		}
		fmt.Fprintln(os.Stderr, "spillway: second signal, leaving at once; leased batches come again when their lease lapses")
		os.Exit(exitFailure)
	}
}

// sameSignal is how soon a second signal does not count as one.
const sameSignal = 200 * time.Millisecond

// run executes one command line and returns its exit code. The command ends
// early, in order, when ctx does.
func run(ctx context.Context, args []string, p process) int {
	var c cli
	helped := false
	parser, err := kong.New(&c,
		kong.Name("spillway"),
		kong.Description(description),
		flagDefaults(),
		kong.Writers(p.stdout, p.stderr),
		kong.Exit(func(int) { helped = true }), // kong calls it after --help only
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
	)
	if err != nil {
		return fail(p, err)
	}
	if len(args) == 0 {
		args = []string{"--help"}
	}
	k, err := parser.Parse(args)
	if helped {
		return exitOK
	}
	if err != nil {
		return fail(p, usageError{fmt.Errorf("%w; see spillway --help", err)})
	}
	p.given = givenFlags(k)
	k.BindTo(ctx, (*context.Context)(nil))
	return fail(p, k.Run(p))
}

// givenFlags returns the keys of the flags that the command line spells out.
func givenFlags(k *kong.Context) map[string]bool {
	given := map[string]bool{}
	for _, path := range k.Path {
		if path.Flag != nil {
			given[keyOf(path.Flag.Name)] = true
		}
	}
	return given
}

// fail prints err, if there is one, and returns the exit code it stands for.
func fail(p process, err error) int {
	if err == nil {
		return exitOK
	}
	fmt.Fprintf(p.stderr, "spillway: %s\n", strings.ReplaceAll(err.Error(), "\n", "\n  "))
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailure
}
