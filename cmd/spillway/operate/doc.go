// Package operate has the commands that watch a running service and act on it.
// Each is a user of the admin API, so what a command may do is decided by the
// service, by the role of the token.
//
// Output for people escapes what could control a terminal, wherever it comes from.
// With -o json, the output is the answer of the API.
package operate

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/alecthomas/kong"
	"golang.org/x/term"
)

// Commands are part of the command line of package app. Their flags have no name
// tag, so none but those of [Connection] is a setting with an environment
// variable: a purge is never confirmed by the environment.
type Commands struct {
	kong.Plugins `group:"Operate a running service:"`

	Top       Top       `cmd:"" group:"Operate a running service:" help:"Show what is lost, whose and why, and the rates of namespaces and partitions, live."`
	Ls        Ls        `cmd:"" group:"Operate a running service:" help:"List partitions by age, depth or drops, or the namespaces."`
	Tail      Tail      `cmd:"" group:"Operate a running service:" help:"Print a sample of the entries that arrive, until interrupted."`
	Dead      Nouns     `cmd:"" group:"Operate a running service:" help:"List, show, replay or delete dead letters: entries that a sink rejected."`
	Jobs      Jobs      `cmd:"" group:"Operate a running service:" help:"List, show, respawn, delete or purge jobs of namespaces of kind queue."`
	Workers   Nouns     `cmd:"" group:"Operate a running service:" help:"List the workers of queues, or tell those of a PHP application to restart."`
	Schedules Schedules `cmd:"" group:"Operate a running service:" help:"List, show, make, pause, trigger or delete schedules of namespaces of kind queue."`
	Rules     Nouns     `cmd:"" group:"Operate a running service:" help:"List, make or delete rules of queues: rates, limits, defaults."`
	Reload    Reload    `cmd:"" group:"Operate a running service:" help:"Read the configuration again, as SIGHUP does."`
	Ns        Nouns     `cmd:"" group:"Operate a running service:" help:"Make, list and delete namespaces of kind queue at run time."`

	AdminToken Nouns `cmd:"" group:"Operate a running service:" help:"Make, list and revoke tokens of the admin port at run time."`

	Check Check `cmd:"" group:"Operate a running service:" help:"Print what the service finds, for monitoring: exits with 0 all is well, 1 at risk, 2 losing or 3 unknown."`
}

// Streams are those of the process. Tests pass their own.
type Streams struct {
	In       io.Reader
	Out, Err io.Writer
}

// file returns the terminal that s is, or nil.
func file(s any) *os.File {
	if f, ok := s.(*os.File); ok && term.IsTerminal(int(f.Fd())) {
		return f
	}
	return nil
}

// tell writes a line to people, beside the output.
func (s Streams) tell(format string, args ...any) error {
	_, err := fmt.Fprintf(s.Err, format+"\n", args...)
	return err
}

// command has the flags of every command that prints an answer.
type command struct {
	Connection `embed:""`
	output     `embed:""`
}

type output struct {
	Output string `short:"o" enum:"text,json" default:"text" help:"Output format: text, or json with the answer of the admin API."`
}

// read gets the answer to a call. done says that the command is at its end: it failed, or the
// answer is printed as JSON.
func (o *output) read(ctx context.Context, s Streams, c *call, to any) (done bool, err error) {
	raw, err := c.get(ctx, to)
	if err != nil || o.Output != "json" {
		return err != nil, err
	}
	return true, printJSON(s.Out, raw)
}

// print prints an answer as JSON, or the line that says the same.
func (o *output) print(s Streams, answer any, line string) error {
	if o.Output == "json" {
		return printJSON(s.Out, answer)
	}
	_, err := fmt.Fprintln(s.Out, line)
	return err
}

// usageError is a mistake in arguments or flags; nothing was asked of the service.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// misuse makes a usageError.
func misuse(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// ExitCode is that of wrong usage of every command.
func (e usageError) ExitCode() int { return 2 }
