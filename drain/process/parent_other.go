//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// bound does nothing: only Linux can do what it is to do.
func bound(*syscall.SysProcAttr) {}

// Hide does nothing: only Linux can.
func Hide() error { return nil }

func unread(*os.File) int { return 0 }
