package proc

import (
	"os/exec"
	"syscall"
)

// KillWithParent makes the kernel kill the command when this process ends, even
// when this process is killed and cannot do it. Call it before cmd.Start.
func KillWithParent(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
}
