package app

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

// serveCmd runs the service until a signal stops it.
type serveCmd struct {
	Config config.Config `embed:""`
}

func (c *serveCmd) Run(ctx context.Context, p config.Process) error {
	hangups := takeSignals()
	// A reload begins with the same flags.
	flags := c.Config
	load := func() (*config.Config, error) {
		cfg := flags
		return &cfg, loadAndTry(&cfg, p, sinkRegistry())
	}
	cfg, err := load()
	if err != nil {
		return err
	}
	tuneGC(p, cfg)
	level := zap.NewAtomicLevelAt(parseLevel(cfg.LogLevel))
	log := newLoggerAt(p.Stderr, level, cfg.LogFormat)
	app, err := NewApp(cfg, sinkRegistry(), log)
	if err != nil {
		return config.Usage(err)
	}
	app.onReload(load, func(cfg *config.Config) {
		level.SetLevel(parseLevel(cfg.LogLevel))
		tuneGC(p, cfg)
	})
	manager := serviceManager(p.LookupEnv)
	if err := app.Start(ctx); err != nil {
		return err
	}
	manager.notify("READY=1")
	if config.IsTerminal(p.Stderr) { // a person started it
		fmt.Fprintf(p.Stderr, "Console: %s\n", consoleURL(app, cfg))
	}
	defer reloadOn(hangups, app, manager)()
	failed := app.Wait(ctx)
	manager.notify("STOPPING=1")
	if delay := app.config().ShutdownDelay; delay > 0 && failed == nil {
		log.Info("not ready any more, requests are answered until the shutdown delay ends",
			zap.Duration("shutdown_delay", delay))
		app.NotReady()
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), delay)
		failed = app.Wait(waiting)
		cancel()
	}
	return errors.Join(failed, app.StopInTime(ctx))
}

// consoleURL is the console of a started service.
func consoleURL(app *App, cfg *config.Config) string {
	if cfg.AdminTLSCert != "" {
		return "https://" + app.AdminListen + "/"
	}
	return "http://" + app.AdminListen + "/"
}

// takeSignals keeps SIGPIPE and SIGHUP from ending the service. Without SIGPIPE, a
// write to stdout or stderr whose reader is gone returns an error: a sink that
// fails, or a log line that is lost. Other commands keep the default, as in
// `spillway config print | head -1`. Each SIGHUP is sent to hangups, but one that comes
// while another waits: both would reload the same.
func takeSignals() (hangups <-chan os.Signal) {
	// Handled, not ignored: a program of the sink exec: would inherit that, and its
	// pipelines expect SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	taken := make(chan os.Signal, 1)
	signal.Notify(taken, syscall.SIGHUP)
	return taken
}

// reloadOn reloads on each signal, until the returned function is called.
func reloadOn(hangups <-chan os.Signal, app *App, manager serviceManagerSocket) (end func()) {
	ended := make(chan struct{})
	var reloading sync.WaitGroup
	reloading.Go(func() {
		for {
			select {
			case <-hangups:
				manager.notify("RELOADING=1")
				app.admin.RecordSignal(app.Reload(context.Background()))
				manager.notify("READY=1")
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		reloading.Wait()
	}
}

const (
	// gcPercent lets the heap, usually a few MB, grow to five times the live
	// data before a collection. With Go's default of 100, a load of 10,000
	// requests per second caused 2.5 collections per second, which took half of
	// one of two processors: p99 was 6.5 ms, and is 4.7 ms with 400
	// (bench/README.md).
	gcPercent = 400
	// gcFloor is added to the memory limit, in bytes, for all that is not requests.
	gcFloor = 256 << 20
)

// tuneGC trades memory for processor time. The memory limit is the sum of the limits
// of ingest: above it, Go collects more often. With the embedded store the entries
// are on the heap without such a limit, so Go's defaults stay. GOGC and GOMEMLIMIT
// in the environment take precedence.
func tuneGC(p config.Process, cfg *config.Config) {
	if cfg.Redis == "embedded:" {
		return
	}
	if _, set := p.LookupEnv("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := p.LookupEnv("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(gcFloor + cfg.Ingest().MaxMemory())
	}
}

// notifyTimeout is how long a manager that reads nothing keeps the service waiting.
const notifyTimeout = time.Second

// serviceManagerSocket is where systemd hears from a service of Type=notify; empty without
// one. See sd_notify(3).
type serviceManagerSocket string

func serviceManager(lookupEnv func(string) (string, bool)) serviceManagerSocket {
	path, _ := lookupEnv("NOTIFY_SOCKET")
	return serviceManagerSocket(path)
}

// notify tells a state. The service runs on where nobody listens.
func (s serviceManagerSocket) notify(state string) {
	if s == "" {
		return
	}
	name := string(s)
	if abstract, ok := strings.CutPrefix(name, "@"); ok {
		name = "\x00" + abstract
	}
	conn, err := net.DialUnix("unixgram", nil, &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		return
	}
	_ = conn.SetWriteDeadline(time.Now().Add(notifyTimeout))
	_, _ = conn.Write([]byte(state))
	_ = conn.Close()
}
