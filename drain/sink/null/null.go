// Package null is the sink "null:": it accepts every batch and keeps nothing.
// It measures Spillway without a target, and drains a namespace that has no reader.
package null

import (
	"context"
	"errors"
	"net/url"

	"github.com/spillway-io/spillway/drain/sink"
)

// New makes the sink of "null:".
func New(u *url.URL) (sink.Sink, error) {
	if u.Opaque != "" || u.Host != "" || u.Path != "" {
		return nil, errors.New(`takes no path: write "null:"`)
	}
	if _, err := sink.Options(u); err != nil {
		return nil, err
	}
	return null{}, nil
}

type null struct{}

func (null) Open(context.Context) error                       { return nil }
func (null) Write(ctx context.Context, _ []*sink.Batch) error { return ctx.Err() }
func (null) Close(context.Context) error                      { return nil }
func (null) Caps() sink.Caps                                  { return sink.Caps{} }
