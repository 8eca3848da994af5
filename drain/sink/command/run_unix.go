//go:build unix

package command

import (
	"context"
	"io"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

const supported = true

const (
	// maxStderr is more than a dead letter shows, see sink.WithDetail.
	maxStderr = 4 * sink.MaxDetail
	// lateOutput bounds the wait for output after the process has ended. Only a process
	// that left the group can still hold the pipes.
	lateOutput = 100 * time.Millisecond
)

// run starts argv in a process group of its own, gives it the input, and waits for its
// end or that of ctx. Then no process of the group is left. The error is exec's.
func run(ctx context.Context, argv, environ []string, input []byte) (stdout, stderr []byte, err error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = environ
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	killGroup := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel = killGroup

	// Pipes of our own: those of os/exec make Wait wait for whoever still holds them.
	var ends [6]*os.File // read and write end of stdin, stdout, stderr
	defer func() {
		for _, f := range ends {
			_ = f.Close() // again, or nil: both are harmless
		}
	}()
	for i := 0; i < len(ends); i += 2 {
		if ends[i], ends[i+1], err = os.Pipe(); err != nil {
			return nil, nil, err
		}
	}
	inWrite, outRead, errRead := ends[1], ends[2], ends[4]
	cmd.Stdin, cmd.Stdout, cmd.Stderr = ends[0], ends[3], ends[5]
	err = cmd.Start()
	_, _, _ = ends[0].Close(), ends[3].Close(), ends[5].Close() // the process has them now
	if err != nil {
		return nil, nil, err
	}

	var copying sync.WaitGroup
	copying.Go(func() {
		// A process need not read its input: its exit code counts.
		_, _ = inWrite.Write(input)
		_ = inWrite.Close()
	})
	copying.Go(func() { stdout = beginning(outRead, sink.MaxResults+1) })
	copying.Go(func() { stderr = beginning(errRead, maxStderr) })
	err = cmd.Wait()
	_ = killGroup() // what it left behind; ESRCH is the rule
	_ = inWrite.Close()
	late := time.Now().Add(lateOutput)
	_, _ = outRead.SetReadDeadline(late), errRead.SetReadDeadline(late)
	copying.Wait()
	return stdout, stderr, err
}

// beginning reads r to its end and returns the first max bytes.
func beginning(r io.Reader, max int64) []byte {
	kept, _ := io.ReadAll(io.LimitReader(r, max))
	_, _ = io.Copy(io.Discard, r)
	return kept
}
