package app

import (
	"cmp"
	"encoding/json"
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

type versionCmd struct {
	Output string `name:"output" short:"o" enum:"text,json" default:"text" help:"Output format: text or json."`
}

// build describes how the binary was built.
type build struct {
	Version  string `json:"version"`  // module version; "(devel)" when built from a working tree
	Revision string `json:"revision"` // commit, empty outside a checkout
	Modified bool   `json:"modified"` // the working tree had uncommitted changes
	Go       string `json:"go"`
	Platform string `json:"platform"`
}

func readBuild() build {
	b := build{Version: "unknown", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return b
	}
	b.Version = info.Main.Version
	for _, dep := range info.Deps { // of another module's build with sinks of its own
		if dep.Path == "github.com/spillway-io/spillway" {
			b.Version = dep.Version
		}
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			b.Revision = s.Value
		case "vcs.modified":
			b.Modified = s.Value == "true"
		}
	}
	return b
}

func (c *versionCmd) Run(p config.Process) error {
	b := readBuild()
	if c.Output == "json" {
		return json.NewEncoder(p.Stdout).Encode(b)
	}
	_, err := fmt.Fprintf(p.Stdout, "spillway %s\nrevision %s modified %t\n%s %s\n", b.Version,
		cmp.Or(b.Revision, "unknown (built without version control)"), b.Modified, b.Go, b.Platform)
	return err
}
