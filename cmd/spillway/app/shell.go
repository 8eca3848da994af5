package app

import (
	"fmt"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/deploy/man"
)

// completionCmd prints the script that completes command lines.
type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"bash, zsh or fish."`
}

func (c *completionCmd) Run(p config.Process, k *kong.Context) error {
	script, err := man.Completion(k.Model, c.Shell)
	if err == nil {
		_, err = fmt.Fprint(p.Stdout, script)
	}
	return err
}

// manCmd prints the manual page, which packages install.
type manCmd struct{}

func (c *manCmd) Run(p config.Process, k *kong.Context) error {
	_, err := fmt.Fprint(p.Stdout, man.Page(k.Model, "Connection:", manSections...))
	return err
}

var manSections = []man.Section{
	{Title: "EXIT STATUS", Items: [][2]string{
		{"0", "The command did what it says. Of check: ok."},
		{"1", "The command failed. Of check: a warning."},
		{"2", "Wrong flags, environment or file; nothing was started or changed. Of check: critical."},
		{"3", "Of check only: the state is unknown, because of wrong flags or a missing right."},
	}},
	{Title: "ENVIRONMENT", Items: [][2]string{
		{"SPILLWAY_...", "Flags as variables: --max-age is SPILLWAY_MAX_AGE. An unknown variable of this kind is an error."},
	}},
	{Title: "EXAMPLES", Items: [][2]string{
		{"spillway config check --config /etc/spillway/spillway.yaml",
			"Find mistakes before a restart."},
		{"spillway top --once", "Is data being lost, whose, and why?"},
		{"spillway drops --id 7f3a", "Why was this event dropped?"},
		{"spillway purge kart --older-than 1h --dry-run", "Count what a purge would delete."},
		{"spillway check", "A probe for a monitoring system."},
	}},
}
