package backend

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
)

// answer is what Redis answered.
type answer string

func (r answer) Error() string { return string(r) }
func (answer) RedisError()     {}

var _ redis.Error = answer("")

func TestEveryErrorHasItsClass(t *testing.T) {
	t.Parallel()
	_, rejected := net.Dial("tcp", redistest.FreeAddr(t))
	const within = " script: 4f1c3fa2d1c4d2a4e2c2f1a9e3e35e0d6d0c5e5f, on @user_script:17."
	sentinels := func(err error) error {
		return fmt.Errorf("redis: all sentinels specified in configuration are unreachable: %w", errors.Join(err, err))
	}
	classes := []error{ErrUnavailable, ErrUnknown, ErrBroken}
	for _, row := range []struct {
		err   error
		class error
	}{
		{answer("NOSCRIPT No matching script. Please use EVAL."), ErrUnavailable},
		{answer("READONLY You can't write against a read only replica."), ErrUnavailable},
		{answer("READONLY You can't write against a read only replica." + within), ErrUnavailable},
		{answer("LOADING Redis is loading the dataset in memory"), ErrUnavailable},
		{answer("MISCONF Redis is configured to save RDB snapshots, but it's currently unable to persist to disk." + within), ErrUnavailable},
		{answer("MISCONF Errors writing to the AOF file: No space left on device" + within), ErrUnavailable},
		{answer("OOM command not allowed when used memory > 'maxmemory'."), ErrUnavailable},
		{answer("OOM command not allowed when used memory > 'maxmemory'." + within), ErrUnavailable},
		{answer("BUSY Redis is busy running a script. You can only call SCRIPT KILL or SHUTDOWN NOSAVE."), ErrUnavailable},
		{answer("MOVED 3999 127.0.0.1:6381"), ErrUnavailable},
		{answer("ASK 3999 127.0.0.1:6381"), ErrUnavailable},
		{answer("TRYAGAIN Multiple keys request during rehashing of slot"), ErrUnavailable},
		{answer("CLUSTERDOWN Hash slot not served"), ErrUnavailable},
		{answer("CLUSTERDOWN The cluster is down"), ErrUnavailable},
		{answer("MASTERDOWN Link with MASTER is down and replica-serve-stale-data is set to 'no'."), ErrUnavailable},
		{answer("NOREPLICAS Not enough good replicas to write." + within), ErrUnavailable},
		{answer("ERR max number of clients reached"), ErrUnavailable},
		{fmt.Errorf("hook: %w", answer("LOADING Redis is loading the dataset in memory")), ErrUnavailable},

		{answer("CROSSSLOT Keys in request don't hash to the same slot"), ErrBroken},
		{answer("ERR Script attempted to access a non local key in a cluster node"), ErrBroken},
		{answer("NOAUTH Authentication required."), ErrBroken},
		{answer("WRONGPASS invalid username-password pair or user is disabled."), ErrBroken},
		{answer("NOPERM this user has no permissions to run the 'evalsha' command"), ErrBroken},
		{answer("ERR The user executing the script can't run this command or subcommand" + within), ErrBroken},
		{answer("ERR user_script:12: attempt to perform arithmetic on a nil value"), ErrBroken},
		{answer("WRONGTYPE Operation against a key holding the wrong kind of value" + within), ErrBroken},
		{answer("ERR produce: bad arguments"), ErrBroken},

		{rejected, ErrUnavailable},
		{fmt.Errorf("get connection: %w", rejected), ErrUnavailable},
		{&net.OpError{Op: "dial", Net: "tcp", Err: context.DeadlineExceeded}, ErrUnavailable},
		{&net.OpError{Op: "dial", Net: "tcp", Err: &net.DNSError{Err: "no such host", IsNotFound: true}}, ErrUnavailable},
		{redis.ErrPoolTimeout, ErrUnavailable},
		{redis.ErrPoolExhausted, ErrUnavailable},
		{redis.ErrClosed, ErrUnavailable},
		{errors.New("redis: cluster has no nodes"), ErrUnavailable},
		{errors.New("redis: all sentinels specified in configuration are unreachable"), ErrUnavailable},
		{sentinels(rejected), ErrUnavailable},
		{sentinels(context.DeadlineExceeded), ErrUnavailable},
		{sentinels(answer("WRONGPASS invalid username-password pair or user is disabled.")), ErrBroken},
		{sentinels(redis.Nil), ErrBroken}, // they answer, and know no such master

		{io.EOF, ErrUnknown},
		{io.ErrUnexpectedEOF, ErrUnknown},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}, ErrUnknown},
		{&net.OpError{Op: "write", Net: "tcp", Err: os.NewSyscallError("write", syscall.EPIPE)}, ErrUnknown},
		{&net.OpError{Op: "read", Net: "tcp", Err: os.ErrDeadlineExceeded}, ErrUnknown},
		{context.Canceled, ErrUnknown},
		{context.DeadlineExceeded, ErrUnknown},
		{errors.New("redis: invalid answer: \"!\""), ErrUnknown},
	} {
		got := Classify(row.err)
		for _, class := range classes {
			if errors.Is(got, class) != (class == row.class) {
				t.Errorf("%v: got %v, want only %v", row.err, got, row.class)
			}
		}
		if got != nil && !errors.Is(got, row.err) {
			t.Errorf("%v: the cause is gone", row.err)
		}
	}
	if got := Classify(nil); got != nil {
		t.Errorf("no error: got %v", got)
	}
}

func TestAFullStoreIsUnavailable(t *testing.T) {
	t.Parallel()
	full := Classify(answer("OOM command not allowed when used memory > 'maxmemory'."))
	if !errors.Is(full, ErrFull) || errors.Is(Classify(answer("LOADING x")), ErrFull) {
		t.Error("OOM, and only OOM, is ErrFull")
	}
	if !errors.Is(ErrFull, ErrUnavailable) || !errors.Is(ErrIncompatible, ErrBroken) {
		t.Error("ErrFull is ErrUnavailable, ErrIncompatible is ErrBroken")
	}
}

func TestAReplyTakesWhatTheClientCopies(t *testing.T) {
	t.Parallel()
	var r Reply
	if _, err := r.Write([]byte("$5\r\n")); err != nil {
		t.Fatal(err)
	}
	if n, err := io.CopyN(&r, strings.NewReader("hello\r\n and more"), 7); n != 7 || err != nil {
		t.Fatal(n, err)
	}
	c := Cursor{Rest: r.Raw}
	if got := c.Bulk(); string(got) != "hello" || c.Broken || len(c.Rest) > 0 {
		t.Errorf("read %q, broken %v, left %q", got, c.Broken, c.Rest)
	}
	if n, err := io.CopyN(&r, strings.NewReader("cut"), 7); n != 3 || !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a torn reply: %d bytes, %v", n, err)
	}
}

func TestAnErrorReplyIsRedissError(t *testing.T) {
	t.Parallel()
	var r Reply
	_, err := r.Write([]byte("-MOVED 1 127.0.0.1:7000"))
	var answered redis.Error
	if !errors.As(err, &answered) || answered.Error() != "MOVED 1 127.0.0.1:7000" || len(r.Raw) > 0 {
		t.Errorf("%v; kept %q", err, r.Raw)
	}
}

func TestASlotIsThatOfTheHashTag(t *testing.T) {
	t.Parallel()
	if got := Slot("sw:{user1000}:ready"); got != 3443 { // as the cluster specification has it
		t.Errorf("slot %d", got)
	}
}
