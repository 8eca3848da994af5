//go:build unix && !linux

package process

import (
	"os"
	"syscall"
)

// bound does nothing: only Linux can do what it is to do.
func bound(*syscall.SysProcAttr) {}

func unread(*os.File) int { return 0 }
