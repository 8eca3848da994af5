package sink_test

import (
	"context"
	"errors"
	"net/textproto"
	"net/url"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spillway-io/spillway/drain/sink"
)

func TestAFaultShowsNothingThatAPeerSent(t *testing.T) {
	t.Parallel()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	for _, c := range []struct {
		ctx  context.Context
		err  error
		want string
	}{
		{t.Context(), errors.New("connection reset by peer"), "put to h: connection reset by peer"},
		{t.Context(), errors.New(`malformed HTTP response "c4n4ry"`), "put to h: malformed HTTP response"},
		{t.Context(), textproto.ProtocolError("c4n4ry"), "put to h: malformed answer"},
		{t.Context(), errors.New(strings.Repeat("é", 1000)), "put to h: " + strings.Repeat("é", 128)},
		{ended, errors.New("c4n4ry"), "put to h: context canceled"},
	} {
		got := sink.FaultError(c.ctx, "put to", "h", c.err)
		if got.Error() != c.want || !utf8.ValidString(got.Error()) {
			t.Errorf("got %q, want %q", got, c.want)
		}
	}
	if got := sink.FaultError(ended, "put to", "h", errors.New("x")); !errors.Is(got, context.Canceled) {
		t.Errorf("got %v, want that of the context", got)
	}
}

func TestOnlyCodesOfATargetPass(t *testing.T) {
	t.Parallel()
	for code, want := range map[string]string{
		"SlowDown": " (SlowDown)", "es_rejected_execution_exception": " (es_rejected_execution_exception)", "a-1.b": " (a-1.b)",
		"": "", "two words": "", `{"c4n4ry":1}`: "", "é": "", "a\n": "", strings.Repeat("a", 64): " (" + strings.Repeat("a", 64) + ")", strings.Repeat("a", 65): "",
	} {
		if got := sink.ErrorCode(code); got != want {
			t.Errorf("%q: got %q, want %q", code, got, want)
		}
	}
}

func TestHostsAreChecked(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"x://h": "", "x://h:9200/a": "", "x://[::1]:1": "", "x://u:p@h": "",
		"x:": "names no host: write x://host", "x:h": "names no host: write x://host", "x://:1": "names no host: write x://host",
		"x://h:0": "port is not 1 to 65535", "x://h:65536": "port is not 1 to 65535", "x://h#f": "a # in the URL is written %23",
	} {
		u, err := url.Parse(raw)
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		if err := sink.CheckHost(u, "x://host"); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", raw, got, want)
		}
	}
}
