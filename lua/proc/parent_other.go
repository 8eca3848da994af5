//go:build !linux

package proc

import "os/exec"

// KillWithParent does nothing: only Linux kills a command with its parent.
func KillWithParent(*exec.Cmd) {}
