package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

// rejected and held are numbers that PostgreSQL 15 rejects as jsonb, and takes: a test with the
// tag sinks asks it.
var rejectedNumbers = []string{
	"1e131072", "10e131071", "0.1e131073", "0e-999999", "1e-16384", "0.1e-16383", "1.0e-16383", "100e-16384", "0e99999999999", "1e1073741823", "-1e-1073741824", "[1,-1E131072]",
	"0." + strings.Repeat("0", 16383) + "1", "0." + strings.Repeat("0", 20000), strings.Repeat("1", 131073), strings.Repeat("1", 32000) + "e99073", `{"a":1e999999}`, `["\"",1e999999]`,
}

var heldNumbers = []string{
	"0", "-0", "1e400", "1E+5", "1e131071", "0.1e131072", "0.001e131074", "0e999999", "1e-16383", "0.1e-16382", "1.0e16384", "0e1073741822", "0.0e131073", "-12.5e-3",
	"0." + strings.Repeat("0", 16382) + "1", "0." + strings.Repeat("0", 16383) + "1e5", strings.Repeat("1", 131072), strings.Repeat("1", 32000) + "e99072", `["1e999999","\"1e999999"]`, `{"1e999999":[1,2.5]}`,
}

func TestNumbersBeyondTheRangeOfJSONBAreFound(t *testing.T) {
	t.Parallel()
	for _, text := range rejectedNumbers {
		if goodNumbers([]byte(text)) {
			t.Errorf("%.40s passes", text)
		}
	}
	for _, text := range heldNumbers {
		if !goodNumbers([]byte(text)) {
			t.Errorf("%.40s is rejected", text)
		}
	}
}

// FuzzCheck holds the search for what jsonb rejects to its bounds: what is JSON never makes it
// read past the end.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`"\u0000"`, `"\ud83c\udfae"`, `"\ud83c"`, `"\ud83c\n"`, `"\\u0000"`, `{"\uDFAE":1}`, `"\`, `\u`, `"\ud83c\ud83c"`, `[1e5,-0.1E-7,"\"1e9"]`, `1e999999`} {
		f.Add(s)
	}
	l := &layout{data: "jsonb"}
	f.Fuzz(func(t *testing.T, s string) {
		err := l.check([]byte(s))
		if strings.Contains(strings.ReplaceAll(s, `\\`, ""), `\u0000`) && err == nil {
			t.Errorf("%q passes", s)
		}
	})
}

// A server that announces 900 MB and sends nothing must not make the sink reserve them.
func TestALongAnswerIsRejectedWhenItIsAnnounced(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	go func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			defer conn.Close()
			_, _ = conn.Read(make([]byte, 4096)) // its startup message
			_, _ = conn.Write([]byte{'E', 0x35, 0xa4, 0xe9, 0x00})
		}
	}()
	s := newSink(t, "postgres://u@"+listener.Addr().String()+"/db?table=t&sslmode=disable")
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	if err := s.Open(ctx); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v, want an error at once", err)
	}
}
