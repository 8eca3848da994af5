package app

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

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
	if isTerminal(p.Stderr) { // a person started it
		fmt.Fprintf(p.Stderr, "Console: %s\n", consoleURL(app, cfg))
	}
	defer reloadOn(hangups, app, manager)()
	failed := app.Wait(ctx)
	manager.notify("STOPPING=1")
	if delay := app.config().ShutdownDelay; delay > 0 && failed == nil {
		log.Info("not ready any more, requests are answered until the shutdown delay ends", zap.Duration("shutdown_delay", delay))
		app.NotReady()
		waiting, cancel := context.WithTimeout(context.WithoutCancel(ctx), delay)
		failed = app.Wait(waiting)
		cancel()
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), app.config().ShutdownTimeout)
	defer cancel()
	return errors.Join(failed, app.Stop(stopping))
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
