package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/stdout"
	"github.com/spillway-io/spillway/partition"
)

// demoCmd shows entries move within a second of the first command somebody
// types: the whole service with its defaults, and a client that feeds it.
type demoCmd struct {
	Duration time.Duration `name:"duration" help:"Stop after this long; 0 goes on until interrupted."`
}

const (
	demoTick    = 100 * time.Millisecond
	demoPerTick = 5               // events, so 50 a second
	demoSettle  = 3 * time.Second // linger, and a drain that is in no hurry
)

func (c *demoCmd) Run(ctx context.Context, p process) error {
	if _, err := fromEnv(settingsOf(c), p); err != nil {
		return err
	}
	if c.Duration < 0 {
		return usageError{errors.New("duration: want 0s or more")}
	}
	cfg, err := defaultConfig()
	if err != nil {
		return err
	}
	cfg.Listen, cfg.AdminListen = portOrFree(cfg.Listen, p.stderr), portOrFree(cfg.AdminListen, p.stderr)
	app, err := NewApp(cfg, demoSinks(p.stdout), newLogger(p.stderr, "warn", "auto"))
	if err != nil {
		return err
	}
	if err := app.Start(ctx); err != nil {
		return err
	}
	if c.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	fmt.Fprintf(p.stderr, demoText, app.Listen, app.AdminListen, app.Listen, app.AdminListen, app.Listen)

	feeding, stopFeeding := context.WithCancel(ctx)
	defer stopFeeding()
	fed := make(chan error, 1)
	go func() {
		fed <- feed(feeding, newSender(http.DefaultTransport, "http://"+app.Listen, "default", "", 10*time.Second))
	}()
	failed := app.Wait(ctx)
	stopFeeding()
	failed = errors.Join(failed, <-fed)
	app.drained(demoSettle)

	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cfg.ShutdownTimeout)
	defer cancel()
	err = errors.Join(failed, app.Stop(stopping))
	for name, o := range app.Final {
		fmt.Fprintf(p.stderr, "\n%s: %s\n", name, equation(o.Ledger))
	}
	return err
}

const demoText = `
Spillway is up: events go to http://%s, operators to http://%s.
A few games report about 50 events a second; their batches come out on stdout.
Now, in another terminal:

  send one of your own          curl -d '{"hello":"world"}' http://%s/v1/default/my-game
  see where every entry went    curl http://%s/api/v1/namespaces/default
  look at one game's buffer     curl http://%s/v1/default/arena.match-7

README.md tells what to do next. Ctrl-C ends this and sums up.

`

// equation is the accounting law with its numbers.
func equation(l partition.Ledger) string {
	return fmt.Sprintf("accepted %d = delivered %d + evicted %d + expired %d + dead %d + lost %d + buffered %d",
		l.Accepted, l.Delivered, l.Evicted, l.Expired, l.Dead, l.Lost, l.Buffered)
}

// defaultConfig is that of `spillway serve` without a word.
func defaultConfig() (*Config, error) {
	var c struct {
		Config Config `embed:""`
	}
	parser, err := kong.New(&c, flagDefaults())
	if err != nil {
		return nil, err
	}
	if _, err = parser.Parse(nil); err != nil {
		return nil, err
	}
	// No environment and no file: the demo is the same everywhere.
	nothing := process{lookupEnv: func(string) (string, bool) { return "", false }}
	return &c.Config, c.Config.load(nothing)
}

// demoSinks has the one sink that the demo uses.
func demoSinks(w io.Writer) sink.Registry {
	return sink.Registry{"stdout": func(*url.URL) (sink.Sink, error) { return stdout.NewWriter(w), nil }}
}

// portOrFree returns address, or one with a free port when that is taken.
func portOrFree(address string, stderr io.Writer) string {
	l, err := net.Listen("tcp", address)
	if err == nil {
		err = l.Close()
	}
	if err == nil {
		return address
	}
	fmt.Fprintf(stderr, "%s is in use by another program; taking a free port\n", address)
	return "127.0.0.1:0"
}

// drained waits until nothing is buffered, for at most the given time.
func (a *App) drained(most time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), most)
	defer cancel()
	for sleep(ctx, demoTick/2) {
		o, err := a.store.Overview(ctx, a.store.Namespaces()[0])
		if err != nil || o.Ledger.Buffered == 0 {
			return
		}
	}
}
