// Package load has the commands that send: report, bench and demo.
package load

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/guard"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/stdout"
	spillway "github.com/spillway-io/spillway/ingest/client"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// Demo runs the whole service with its defaults and a client that sends it
// events, so that a new user sees batches within a second.
type Demo struct {
	Duration    time.Duration `name:"duration" help:"Stop after this long; 0 runs until interrupted."`
	Listen      string        `name:"listen" placeholder:"HOST:PORT" help:"Address of the data port, on this machine. Without it 127.0.0.1:8080, or a free port if that is in use."`
	AdminListen string        `name:"admin-listen" placeholder:"HOST:PORT" help:"Address of the admin port, on this machine. Without it 127.0.0.1:8081, or a free port if that is in use."`
}

const (
	demoPoll  = 50 * time.Millisecond
	demoDrain = 3 * time.Second // maximum wait for the last batches: linger, and their delivery
	// demoFirst is how long a person sees the first batches before the instructions, which
	// so are what stands at the end of the terminal.
	demoFirst = 2 * time.Second
)

// A demoPace is how many events the sample games send, how often.
type demoPace struct {
	events int
	every  time.Duration
}

// A program reads 50 events a second. A person reads one in two seconds, and still finds
// an event of their own, and the instructions.
var (
	paceForPrograms = demoPace{5, 100 * time.Millisecond}
	paceForPeople   = demoPace{1, 2 * time.Second}
)

// Run runs it until ctx ends, and prints the ledger.
func (c *Demo) Run(ctx context.Context, p config.Process, newService NewService) error {
	if _, err := config.FromEnv(config.SettingsOf(c), p); err != nil {
		return err
	}
	if c.Duration < 0 {
		return config.Usage(errors.New("duration: want 0s or more"))
	}
	for key, address := range map[string]string{"listen": c.Listen, "admin_listen": c.AdminListen} {
		if host, _, err := net.SplitHostPort(address); address != "" && (err != nil || !wire.IsLoopback(host)) {
			return config.Usage(fmt.Errorf("%s: %q: want an address of this machine, such as 127.0.0.1:8090: the demo asks for no token", key, address))
		}
	}
	return c.Show(ctx, p, newService, config.IsTerminal(p.Stdout))
}

// Show is Run, with the output of a terminal where a person reads it.
func (c *Demo) Show(ctx context.Context, p config.Process, newService NewService, person bool) error {
	cfg, err := config.Default()
	if err != nil {
		return err
	}
	cfg.Listen, cfg.AdminListen = demoPort(c.Listen, cfg.Listen, p.Stderr),
		demoPort(c.AdminListen, cfg.AdminListen, p.Stderr)
	out, pace, where := p.Stdout, paceForPrograms, "on stdout"
	if person {
		out, pace, where = demoHighlighter{p.Stdout}, paceForPeople, "here, marked,"
	}
	service, err := newService(cfg, demoSinks(out), p.Stderr, "warn")
	if err != nil {
		return err
	}
	if err := service.Start(ctx); err != nil {
		return err
	}
	data, admin := service.Addresses()
	if c.Duration > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, c.Duration)
		defer cancel()
	}
	feeding, stopFeeding := context.WithCancel(ctx)
	defer stopFeeding()
	fed := make(chan error, 1)
	go func() {
		fed <- feed(feeding, spillway.NewPoster("http://"+data, spillway.PosterConfig{
			Namespace: "default",
			Timeout:   10 * time.Second,
			Transport: http.DefaultTransport,
		}), pace)
	}()
	if person {
		guard.Sleep(ctx, demoFirst)
	}
	fmt.Fprintf(p.Stderr, demoText, data, admin, float64(pace.events)/pace.every.Seconds(), data,
		admin, data, admin,
		cmp.Or(p.Name, "spillway"), admin, where)
	failed := service.Wait(ctx)
	stopFeeding()
	failed = errors.Join(failed, <-fed)
	awaitDrained(service.Store(), demoDrain)
	err = errors.Join(failed, service.StopInTime(ctx))
	for name, o := range service.Final() {
		fmt.Fprintf(p.Stderr, "\n%s: %s\n", name, equation(o.Ledger))
	}
	return err
}

const demoText = `
Spillway is running: data port http://%s, admin port http://%s.
Four sample games send %g events per second; what is delivered is written to stdout, a line an event.
Try in another terminal:

  send an event of your own     curl -d '{"hello":"world"}' http://%s/v1/default/my-game
  read the ledger               curl http://%s/api/v1/namespaces/default
  read one game's partition     curl http://%s/v1/default/arena.match-7
  watch it                      http://%s/ in a browser, or: %s top --admin http://%s

Your event appears %s a second later. README.md says what to do next.
Ctrl-C stops the demo and prints the final ledger.

`

// equation is the equation of the ledger with its numbers.
func equation(l partition.Ledger) string {
	return fmt.Sprintf("accepted %d = delivered %d + evicted %d + expired %d + dead %d + lost %d + buffered %d",
		l.Accepted, l.Delivered, l.Evicted, l.Expired, l.Dead, l.Lost, l.Buffered)
}

// demoSinks has the only sink that the demo uses.
func demoSinks(w io.Writer) sink.Registry {
	return sink.Registry{"stdout": func(*url.URL) (sink.Sink, error) { return stdout.NewWriter(w), nil }}
}

// demoPort is the address that was asked for, or the usual one.
func demoPort(asked, usual string, stderr io.Writer) string {
	if asked != "" {
		return asked
	}
	return portOrFree(usual, stderr)
}

// portOrFree returns address, or a loopback address with a free port if address is
// in use.
func portOrFree(address string, stderr io.Writer) string {
	l, err := net.Listen("tcp", address)
	if err == nil {
		err = l.Close()
	}
	if err == nil {
		return address
	}
	fmt.Fprintf(stderr, "%s is in use by another program; using a free port\n", address)
	return "127.0.0.1:0"
}

// awaitDrained waits until nothing is buffered, for at most the given time.
func awaitDrained(store *partition.Store, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	for guard.Sleep(ctx, demoPoll) {
		o, err := store.Overview(ctx, store.Namespaces()[0])
		if err != nil || o.Ledger.Buffered == 0 {
			return
		}
	}
}

// Service is the whole service in this process, for bench and demo.
type Service interface {
	Start(ctx context.Context) error
	// Wait returns when ctx ends, or with the error that ended the service before.
	Wait(ctx context.Context) error
	// StopInTime stops it, also when ctx has ended.
	StopInTime(ctx context.Context) error
	// Addresses are those of its ports, once it is started.
	Addresses() (data, admin string)
	Store() *partition.Store
	// Final is the overview of each namespace of an embedded store, once it is stopped.
	Final() map[string]partition.Overview
}

// NewService makes a Service, with the sinks that spillway has where sinks is nil. It logs to
// stderr.
type NewService func(cfg *config.Config, sinks sink.Registry, stderr io.Writer, level string) (Service, error)
