package app

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

// configCmd shows a configuration without starting the service.
type configCmd struct {
	Check configCheckCmd `cmd:"" help:"Check whether serve would accept the configuration. Opens no port, and no connection unless --online."`
	Print configPrintCmd `cmd:"" help:"Print the effective configuration in the form of the file, with the source of each value and without passwords."`
}

type configCheckCmd struct {
	Online bool          `name:"online" help:"Connect to the store and to the sinks, too, and write nothing to them."`
	Config config.Config `embed:""`
}

func (c *configCheckCmd) Run(ctx context.Context, p config.Process) error {
	_, err := config.FromEnv(config.SettingsOf(c), p)
	if loaded := loadAndTry(&c.Config, p, sinkRegistry()); loaded != nil {
		err = loaded // with the same unknown variables
	}
	if err != nil {
		return err
	}
	// The same App as serve builds; it opens nothing before Start.
	app, err := NewApp(&c.Config, sinkRegistry(), zap.NewNop())
	if err != nil {
		return config.Usage(err)
	}
	if err := app.Stop(ctx); err != nil {
		return err
	}
	warnings, contacted := c.Config.Warnings(), "sinks and store not contacted"
	if c.Online {
		more, err := checkOnline(ctx, &c.Config, sinkRegistry())
		if err != nil {
			return err
		}
		warnings, contacted = append(warnings, more...), "store and sinks answer"
	}
	for _, text := range warnings {
		fmt.Fprintln(p.Stdout, "warning:", text)
	}
	fmt.Fprintf(p.Stdout, "configuration valid: namespaces %v; %s\n", c.Config.AllNames(), contacted)
	return nil
}

type configPrintCmd struct {
	Config config.Config `embed:""`
}

func (c *configPrintCmd) Run(p config.Process) error {
	if err := c.Config.Load(p); err != nil {
		return err
	}
	if err := c.Config.Print(p.Stdout); err != nil {
		return fmt.Errorf("print config: %w", err)
	}
	return nil
}
