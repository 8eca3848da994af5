package app

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.uber.org/zap"
)

// serveCmd runs the service until a signal stops it.
type serveCmd struct {
	Config Config `embed:""`
}

func (c *serveCmd) Run(ctx context.Context, p process) error {
	if err := c.Config.loadAndTry(p, sinkRegistry()); err != nil {
		return err
	}
	tuneGC(p, &c.Config)
	log := newLogger(p.stderr, c.Config.LogLevel, c.Config.LogFormat)
	app, err := NewApp(&c.Config, sinkRegistry(), log)
	if err != nil {
		return usageError{err}
	}
	defer ignoreSignals(log)()
	if err := app.Start(ctx); err != nil {
		return err
	}
	failed := app.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Config.ShutdownTimeout)
	defer cancel()
	return errors.Join(failed, app.Stop(stopping))
}

// ignoreSignals keeps two signals from ending the service. Without SIGPIPE, a
// write to stdout or stderr whose reader is gone returns an error: a sink that
// fails, or a log line that is lost. SIGHUP makes many daemons reload, so it is
// logged. Other commands keep the default, as in `spillway config print | head -1`.
// The returned function stops the logging; both signals stay ignored.
func ignoreSignals(log *zap.Logger) (end func()) {
	// Handled, not ignored: a program of the sink exec: would inherit that, and its
	// pipelines expect SIGPIPE.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	var logging sync.WaitGroup
	logging.Go(func() {
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP ignored: the configuration is read at startup only; restart to apply changes")
			case <-ended:
				return
			}
		}
	})
	return func() {
		close(ended)
		logging.Wait()
	}
}
