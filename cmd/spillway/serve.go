package main

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"go.uber.org/zap"
)

// serveCmd runs the service until it is told to stop.
type serveCmd struct {
	Config Config `embed:""`
}

func (c *serveCmd) Run(ctx context.Context, p process) error {
	if err := c.Config.load(p); err != nil {
		return err
	}
	tuneGC(p, &c.Config)
	log := newLogger(p.stderr, c.Config.LogLevel, c.Config.LogFormat)
	app, err := NewApp(&c.Config, sinkRegistry(), log)
	if err != nil {
		return usageError{err}
	}
	defer surviveSignals(log)()
	if err := app.Start(ctx); err != nil {
		return err
	}
	failed := app.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Config.ShutdownTimeout)
	defer cancel()
	return errors.Join(failed, app.Stop(stopping))
}

// surviveSignals keeps two signals from ending a service that others depend on:
// SIGPIPE, so that a write to stdout or stderr whose reader is gone returns an
// error (a sink that fails, a log line that is lost), and SIGHUP, which many
// daemons take as the order to reload. Commands that end by themselves keep the
// default, as in `spillway config print | head -1`. The function that it returns
// ends the logging of SIGHUP; both stay without effect.
func surviveSignals(log *zap.Logger) (end func()) {
	signal.Ignore(syscall.SIGPIPE)
	hangups, ended := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(hangups, syscall.SIGHUP)
	var logging sync.WaitGroup
	logging.Go(func() {
		for {
			select {
			case <-hangups:
				log.Warn("SIGHUP ignored: the configuration is read at the start only; restart to change it")
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
