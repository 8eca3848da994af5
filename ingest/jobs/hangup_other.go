//go:build !linux

package jobs

import (
	"syscall"

	"go.uber.org/zap"
)

// Other systems do not tell that a client went away while its request runs. Jobs that such
// a client was handed are claimed again when their lease ends.

type hangups struct{}

func newHangups(*zap.Logger) *hangups { return &hangups{} }

func (*hangups) add(*client)    {}
func (*hangups) remove(*client) {}
func (*hangups) close()         {}

func hasHungUp(syscall.RawConn) bool { return false }
