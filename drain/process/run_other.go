//go:build !unix

package process

import (
	"errors"
	"os"
	"syscall"
)

// Supported reports whether children can be run here: there are process groups on Unix only.
const Supported = false

// There are no such signals here.
const (
	PauseSignal  = syscall.Signal(-1)
	ResumeSignal = syscall.Signal(-2)
)

// Start is errors.ErrUnsupported.
func (Command) Start(bool) (*Child, error) { return nil, errors.ErrUnsupported }

// Kill is of no child.
func (c *Child) Kill() {}

// Signal is of no child.
func (c *Child) Signal(syscall.Signal) {}

// SignalGroup is of no child.
func (c *Child) SignalGroup(syscall.Signal) {}

func unread(*os.File) int { return 0 }

func readNow(*os.File, []byte) int { return 0 }

// Memory is of no child.
func (c *Child) Memory() int64 { return 0 }

// Hide hides nothing.
func Hide() error { return nil }
