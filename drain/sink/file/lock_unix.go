//go:build darwin || dragonfly || freebsd || linux || netbsd || openbsd

package file

import (
	"errors"
	"os"
	"syscall"
)

// lock keeps a second writer out: taking back half a batch would take its lines
// along. The lock ends with the descriptor, so a crash leaves none behind.
func lock(f *os.File) error {
	err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return errors.New("another sink or process writes to it")
	}
	return err
}

// writable is nil where this user may create files in a directory.
func writable(dir string) error {
	const writeAndSearch = 2 | 1
	return syscall.Access(dir, writeAndSearch)
}
