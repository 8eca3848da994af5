package operate

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// openTerminal returns both ends of a pseudo-terminal of 100 × 30.
func openTerminal(t *testing.T) (keyboard, program *os.File) {
	t.Helper()
	keyboard, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = keyboard.Close() })
	control := func(request uintptr, value unsafe.Pointer) {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, keyboard.Fd(), request, uintptr(value)); errno != 0 {
			t.Fatal(errno)
		}
	}
	var number, locked int32
	control(syscall.TIOCSPTLCK, unsafe.Pointer(&locked))
	control(syscall.TIOCGPTN, unsafe.Pointer(&number))
	size := [4]uint16{30, 100}
	control(syscall.TIOCSWINSZ, unsafe.Pointer(&size))
	program, err = os.OpenFile(fmt.Sprint("/dev/pts/", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = program.Close() })
	return keyboard, program
}

// readUntil returns what the program wrote up to the text.
func readUntil(t *testing.T, from *os.File, text string) string {
	t.Helper()
	var all strings.Builder
	deadline := time.Now().Add(30 * time.Second)
	for part := make([]byte, 4096); !strings.Contains(all.String(), text); {
		n, err := from.Read(part)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%v, %q is not in %q", err, text, all.String())
		}
		all.Write(part[:n])
	}
	return all.String()
}

func TestTopRedrawsOnATerminalUntilQ(t *testing.T) {
	t.Parallel()
	keyboard, program := openTerminal(t)
	api := losing(t)
	c := Top{command: command{Connection: Connection{Admin: api.URL, Timeout: 10 * time.Second}, output: output{Output: "text"}}, Sort: "trouble", Limit: 20}
	ended := make(chan error, 1)
	go func() { ended <- c.Run(t.Context(), Streams{In: program, Out: program, Err: program}) }()
	first := readUntil(t, keyboard, "by trouble")
	if !strings.HasPrefix(first, enterScreen+home+reverse+"DATA IS BEING LOST OR REJECTED"+plain) {
		t.Errorf("got %q", first)
	}
	if _, err := keyboard.WriteString("s"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, keyboard, "by age")
	api.Close()
	readUntil(t, keyboard, "NO ANSWER: whether data is being lost is unknown")
	if _, err := keyboard.WriteString("q"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, keyboard, leaveScreen)
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
}

func TestAPurgeAsksOnATerminal(t *testing.T) {
	t.Parallel()
	keyboard, program := openTerminal(t)
	api := newFakeAPI(t, map[string]string{"POST /api/v1/namespaces/kart/purge": `{"entries":7,"partitions":1,"complete":true}`})
	k, ended := parse(t, "purge", "kart", "--admin="+api.URL), make(chan error, 1)
	go func() { ended <- k.Run(Streams{In: program, Out: program, Err: program}) }()
	readUntil(t, keyboard, "Type 7 to delete them: ")
	if _, err := keyboard.WriteString("7\n"); err != nil {
		t.Fatal(err)
	}
	readUntil(t, keyboard, "kart: deleted 7 entries in 1 partition")
	if err := <-ended; err != nil {
		t.Errorf("got %v", err)
	}
}
