package main

import (
	"context"
	"errors"
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
	if err := app.Start(ctx); err != nil {
		return err
	}
	failed := app.Wait(ctx)
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.Config.ShutdownTimeout)
	defer cancel()
	return errors.Join(failed, app.Stop(stopping))
}
