// Package app is the program spillway. A module with sinks of its own builds its own
// spillway of it, see [Main] and deploy/examples/plugin.
package app

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/alecthomas/kong"
	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/cmd/spillway/load"
	"github.com/spillway-io/spillway/cmd/spillway/operate"
	"github.com/spillway-io/spillway/cmd/spillway/work"
	"github.com/spillway-io/spillway/partition/control"
)

// Exit codes of every command.
const (
	exitOK      = 0
	exitFailure = 1 // the command failed
	exitUsage   = 2 // wrong flags, environment or file; nothing was started
)

// cli is the command line. Flags live with their commands.
type cli struct {
	Serve     serveCmd     `cmd:"" help:"Run the service: ingest, buffer and drain."`
	Report    load.Report  `cmd:"" help:"Send lines from a file or stdin to a running service."`
	Demo      load.Demo    `cmd:"" help:"Run the service on the embedded store and send it sample events."`
	Work      work.Command `cmd:"" help:"Run children that do the jobs of queues, in any language."`
	Bench     load.Bench   `cmd:"" help:"Send load to a service and report latency and throughput."`
	Config    configCmd    `cmd:"" help:"Check or print the configuration that serve would use."`
	Transform transformCmd `cmd:"" help:"Print what the transform of a namespace makes of lines of the input."`
	Token     tokenCmd     `cmd:"" help:"Create a token and the hash of it that goes into the configuration, or manage those of a running service."`
	Version   versionCmd   `cmd:"" help:"Print the version. --version does the same."`
	Help      helpCmd      `cmd:"" help:"Print the help of a command. --help after it does the same."`

	Completion completionCmd `cmd:"" help:"Print the script that completes command lines in a shell."`
	Man        manCmd        `cmd:"" hidden:"" help:"Print the manual page."`

	Operate operate.Commands `embed:""`
}

// helpCmd is there for the list of commands: run turns it into --help.
type helpCmd struct {
	Command []string `arg:"" optional:"" help:"The command, such as: config check."`
}

const description = `Buffers the newest N events of each partition in Redis and delivers them to sinks, in batches and before they expire; keeps
durable jobs in queues, each until it is done.

Every flag is also an environment variable: --max-age is SPILLWAY_MAX_AGE. Every flag of serve is also a key
of its file: max_age. A flag takes precedence over the environment, and the environment over the file. Of the
commands that operate a running service, only --admin, --api-token, --api-token-file and --admin-ca are variables, of
work only --server and --token.`

// Main runs the command line of the process with the sinks of this module and the
// given ones, and exits. It is called once.
func Main(more ...SinkType) {
	if err := addSinks(more); err != nil {
		fmt.Fprintf(os.Stderr, "spillway: %s\n", err)
		os.Exit(exitUsage)
	}
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan int, 1)
	go func() {
		done <- run(ctx, os.Args[1:], config.Process{
			Stdin:     os.Stdin,
			Stdout:    os.Stdout,
			Stderr:    os.Stderr,
			LookupEnv: os.LookupEnv,
			Environ:   os.Environ(),
			Name:      os.Args[0],
		})
	}()
	select {
	case code := <-done:
		os.Exit(code)
	case <-signals:
		stop()
	}
	// The first signal stops the command in order, the second exits at once. A
	// signal within sameSignal of the first is the same one: the process group
	// got it, and make forwarded it.
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
		fmt.Fprintln(os.Stderr, "spillway: second signal, exiting at once; leased batches are delivered again when their leases expire")
		os.Exit(exitFailure)
	}
}

// sameSignal is the time after the first signal in which another one is ignored.
const sameSignal = 200 * time.Millisecond

// run executes one command line and returns its exit code. When ctx ends, the
// command stops in order.
func run(ctx context.Context, args []string, p config.Process) int {
	c := cli{Operate: operate.New(), Token: tokenCmd{Plugins: operate.Verbs("token")}}
	helped := false
	parser, err := kong.New(&c,
		kong.Name("spillway"),
		kong.Description(description),
		config.FlagDefaults(sinkSchemes()),
		kong.Writers(p.Stdout, p.Stderr),
		kong.Exit(func(int) { helped = true }), // kong calls this after --help only
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 110}),
	)
	if err != nil {
		return fail(p, err)
	}
	if len(args) == 0 {
		overview(p.Stdout, parser.Model.Children)
		return exitOK
	}
	k, err := parser.Parse(rewrite(args))
	if helped {
		return exitOK
	}
	if err != nil {
		var failed *kong.ParseError
		if errors.As(err, &failed) {
			k = failed.Context
		}
		return operate.ExitCode(k, fail(p, config.Usage(fmt.Errorf("%w%s; see %s --help",
			err, hint(err, k),
			commandPath(k)))))
	}
	p.Given, p.Variables = config.GivenFlags(k), config.VariablesOf(&c)
	if p.Given["api_token_file"] { // a flag takes precedence over SPILLWAY_API_TOKEN
		p.Given["api_token"] = true
	}
	if c, ok := k.Selected().Target.Addr().Interface().(interface{ Settings() any }); ok {
		if _, err := config.FromEnv(config.SettingsOf(c.Settings()), p); err != nil {
			return operate.ExitCode(k, fail(p, err))
		}
	}
	k.BindTo(ctx, (*context.Context)(nil))
	return fail(p, k.Run(p, operate.Streams{In: p.Stdin, Out: p.Stdout, Err: p.Stderr},
		load.NewService(newService), work.Program{
			Version: readBuild().Version,
			NewLogger: func(w io.Writer, level string) *zap.Logger {
				return newLogger(w,
					level, "auto")
			},
		}))
}

// overview lists the commands by group, a line each.
func overview(w io.Writer, commands []*kong.Node) {
	fmt.Fprintln(w, "Usage: spillway <command>; spillway --help tells more, and spillway <command> --help of one.")
	group := ""
	for _, c := range commands {
		title := "Commands:"
		if c.Group != nil {
			title = c.Group.Title
		}
		if title != group {
			fmt.Fprintf(w, "\n%s\n", title)
			group = title
		}
		if about, _, _ := strings.Cut(c.Help, "."); !c.Hidden {
			fmt.Fprintf(w, "  %-12s %s\n", c.Name, about)
		}
	}
}

// commandPath names the command as far as it was understood, for its help.
func commandPath(k *kong.Context) string {
	path := "spillway"
	if k != nil {
		for _, p := range k.Path {
			if p.Command != nil {
				path += " " + p.Command.Name
			}
		}
	}
	return path
}

// hint is what to do about an error of the command line that does not say it.
func hint(err error, k *kong.Context) string {
	if commandPath(k) == "spillway peek" && strings.HasSuffix(err.Error(), `<partition>"`) {
		return " of a buffer (of a queue: spillway jobs peek)"
	}
	if k == nil {
		return ""
	}
	node := k.Model.Node
	if selected := k.Selected(); selected != nil {
		node = selected
	}
	if strings.HasPrefix(err.Error(), "unexpected argument ") && hasFlag(node, "partition") {
		return ": a partition is given with --partition"
	}
	flag, unknown := strings.CutPrefix(err.Error(), "unknown flag --")
	if !unknown || node.Leaf() {
		return ""
	}
	for _, command := range node.Leaves(true) {
		if hasFlag(command, flag) {
			return ": it is a flag of a command, and goes after its name"
		}
	}
	return ""
}

func hasFlag(command *kong.Node, name string) bool {
	return slices.ContainsFunc(command.Flags, func(f *kong.Flag) bool { return f.Name == name })
}

// rewrite turns other ways to ask into those of kong.
func rewrite(args []string) []string {
	switch args[0] {
	case "--version":
		return append([]string{"version"}, args[1:]...)
	case "help":
		return append(slices.Clone(args[1:]), "--help")
	}
	return args
}

// fail prints err unless it is nil, and returns the exit code for it.
func fail(p config.Process, err error) int {
	if err == nil {
		return exitOK
	}
	failed := kong.ExitCoder(nil)
	if errors.As(err, &failed) && err.Error() == "" { // printed already
		return failed.ExitCode()
	}
	fmt.Fprintf(p.Stderr, "spillway: %s\n", strings.ReplaceAll(strings.TrimPrefix(err.Error(), "spillway: "), "\n", "\n  ")) // errors of the client begin so
	if errors.As(err, new(config.UsageError)) {
		return exitUsage
	}
	if failed != nil {
		return failed.ExitCode()
	}
	return exitFailure
}

// tokenCmd has the commands for tokens. Without one of them it prints a new token.
type tokenCmd struct {
	New newTokenCmd `cmd:"" default:"withargs" help:"Print a new token and the hash of it that goes into the configuration. No service is asked."`
	kong.Plugins
}

// newTokenCmd creates a token and prints it with its hash. The token is not stored; the
// service is configured with the hash.
type newTokenCmd struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

func (c *newTokenCmd) Run(p config.Process) error {
	token := control.NewToken()
	hash := control.FormatHash(control.HashToken(token))
	if c.Output == "json" {
		return json.NewEncoder(p.Stdout).Encode(map[string]string{"token": token, "hash": hash})
	}
	_, err := fmt.Fprintf(p.Stdout, "token  %s\nhash   %s\n", token, hash)
	if err == nil {
		_, err = fmt.Fprintln(p.Stderr, "The client sends the token (Authorization: Bearer). It is not shown again. The hash goes into the "+
			"configuration file: under tokens of a namespace, or admin_tokens.")
	}
	return err
}
