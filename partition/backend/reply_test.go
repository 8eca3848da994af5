package backend

import (
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

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
