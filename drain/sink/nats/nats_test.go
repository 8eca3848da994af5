package nats

import (
	"context"
	"errors"
	"net"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"go.uber.org/goleak"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/sinktest"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func parse(t testing.TB, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestURLsThatCannotWorkAreRejectedWithoutTheirSecrets(t *testing.T) {
	t.Parallel()
	sinktest.RejectURLs(t, New,
		"nats:", "nats:h/s", "nats:///s", "nats://h", "nats://h/", "nats://:4222/s", "nats://h:1,:2/s", "nats://h,/s", "nats://h/s#x", "nats://h/s?tls=yes",
		"nats://h/s?streams=X", "nats://h/s?stream=a.b", "nats://h/a..b", "nats://h/.a", "nats://h/a.", "nats://h/a.*", "nats://h/a.%3E", "nats://h/a%20b",
		"nats://h/$JS.API", "nats://h/_INBOX.x", "nats://h/a.{name}", "nats://u:s3cret@h/a.{", "nats://h/"+strings.Repeat("a", 201),
	)
	s := sinktest.Make[*Sink](t, New, "nats://u:p%40@h1:4222,h2:4223/events.{namespace}.{partition}?stream=EVENTS&tls=1")
	if o := s.options; o.User != "u" || o.Password != "p@" || !o.Secure || strings.Join(o.Servers, " ") != "nats://h1:4222 nats://h2:4223" || o.AllowReconnect {
		t.Errorf("got %+v", o)
	}
	if o := sinktest.Make[*Sink](t, New, "nats://s3cret@h/s").options; o.Token != "s3cret" {
		t.Errorf("got %+v, want a token", o)
	}
}

func TestCredentialsThatAreNotThereAreNamed(t *testing.T) {
	t.Parallel()
	if _, err := New(parse(t, "nats://h/s?creds=/nowhere/kart.creds")); err == nil || !strings.Contains(err.Error(), "creds: stat /nowhere/kart.creds: no such file") {
		t.Errorf("got %v", err)
	}
	if _, err := New(parse(t, "nats://u:s3cret@h/s?creds=/nowhere/kart.creds")); err == nil || !strings.Contains(err.Error(), "before the @") {
		t.Errorf("two users: got %v", err)
	}
}

func TestADotInANameDoesNotEndATokenOfTheSubject(t *testing.T) {
	t.Parallel()
	for form, want := range map[string]string{
		"events":                         "events",
		"events.{namespace}.{partition}": "events.my%2Egame.p%2E1",
		"e.{partition}-{namespace}.x":    "e.p%2E1-my%2Egame.x",
	} {
		s := &Sink{subject: form}
		if got := s.name(&sink.Batch{Namespace: "my.game", Partition: "p.1"}); got != want {
			t.Errorf("%s: got %s, want %s", form, got, want)
		}
	}
}

func TestAnAnswerIsReadByItsCode(t *testing.T) {
	t.Parallel()
	for _, row := range []struct {
		data                            string
		good, permanent, throttle, open bool
	}{
		{data: `{"stream":"S","seq":1}`, good: true},
		{data: `{"stream":"S","seq":1,"duplicate":true}`, good: true},
		{data: ``, open: true},
		{data: `{}`},
		{data: `not json`},
		{data: `{"error":{"code":400,"err_code":10054,"description":"message size exceeds maximum allowed"}}`, permanent: true},
		{data: `{"error":{"code":503,"err_code":10077,"description":"maximum bytes exceeded"}}`, throttle: true},
		{data: `{"error":{"code":400,"err_code":10060,"description":"expected stream does not match"}}`, open: true},
		{data: `{"error":{"code":503,"err_code":10023,"description":"insufficient resources"}}`},
		{data: `{"error":{"err_code":1,"description":"` + strings.Repeat("é", 5000) + `"}}`},
	} {
		err := judge(&nats.Msg{Data: []byte(row.data)})
		_, throttle := sink.ThrottledFor(err)
		if (err == nil) != row.good || sink.IsPermanent(err) != row.permanent || throttle != row.throttle || errors.Is(err, sink.ErrNotConnected) != row.open {
			t.Errorf("%.100s: got %v", row.data, err)
		}
		if err != nil && len(err.Error()) > 300 {
			t.Errorf("%.100s: the text has %d bytes", row.data, len(err.Error()))
		}
	}
}

func TestOpenWithoutAServerEndsWithItsContext(t *testing.T) {
	t.Parallel()
	silent, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer silent.Close()
	for name, addr := range map[string]string{"rejected": redistest.FreeAddr(t), "silent": silent.Addr().String()} {
		s, err := New(parse(t, "nats://"+addr+"/events"))
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		start := time.Now()
		if err := s.Open(ctx); err == nil || strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("%s: got %v, want an error without the address", name, err)
		}
		cancel()
		if took := time.Since(start); took > 20*time.Second {
			t.Errorf("%s: took %s", name, took)
		}
		if err := s.Write(t.Context(), []*sink.Batch{{Partition: "p", Entries: []sink.Entry{{Seq: 1}}}}); !errors.Is(err, sink.ErrNotConnected) {
			t.Errorf("%s: Write: got %v", name, err)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	}
}
