// Package load has the commands that send: report, bench and demo.
package load

import (
	"context"
	"io"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

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
