package process

import (
	"testing"

	"golang.org/x/sys/unix"
)

func TestAHiddenProcessIsNotReadByThoseOfItsUser(t *testing.T) {
	t.Parallel()
	must(t, Hide())
	defer func() { must(t, unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)) }()
	if dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err != nil || dumpable != 0 {
		t.Errorf("dumpable is %d, %v", dumpable, err)
	}
}
