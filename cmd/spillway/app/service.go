package app

import (
	"io"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/cmd/spillway/load"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// service is an App as bench and demo use it.
type service struct{ *App }

// newService is a load.NewService.
func newService(cfg *config.Config, sinks sink.Registry, stderr io.Writer,
	level string) (load.Service, error) {
	if sinks == nil {
		sinks = sinkRegistry()
	}
	a, err := NewApp(cfg, sinks, newLogger(stderr, level, "auto"))
	return service{a}, err
}

func (s service) Addresses() (data, admin string)      { return s.Listen, s.AdminListen }
func (s service) Store() *partition.Store              { return s.current.Load().stores[config.DefaultPool] }
func (s service) Final() map[string]partition.Overview { return s.App.Final }
