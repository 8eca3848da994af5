package process

import (
	"math"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// bound makes the kernel kill the child when this process ends, also when it is killed. And the
// child inherits no descriptor: not even those that this process inherited itself.
func bound(attributes *syscall.SysProcAttr) {
	attributes.Pdeathsig = syscall.SIGKILL
	_ = unix.CloseRange(3, math.MaxInt32, unix.CLOSE_RANGE_CLOEXEC) // not before Linux 5.11
}

// Hide keeps other processes of the same user, children too, from reading the environment and memory of this
// one, where its token is. A debugger cannot attach then. Root still may.
func Hide() error { return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0) }

// unread is how many bytes are in a pipe.
func unread(pipe *os.File) (n int) {
	raw, err := pipe.SyscallConn()
	if err == nil {
		_ = raw.Control(func(fd uintptr) { n, _ = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	}
	return n
}
