package backend

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// probeAnswer bounds each step of a look at a server that does not behave like Redis.
const probeAnswer = 300 * time.Millisecond

// An explainedError is why a Check failed, in words for the person who set it up.
type explainedError struct {
	text  string
	cause error
}

func (e *explainedError) Error() string { return e.text }
func (e *explainedError) Unwrap() error { return e.cause }

// explanations are by what the server or the client says.
var explanations = []struct{ said, means string }{
	{"NOAUTH ", "wants a password: put it into the URL, as in redis://:PASSWORD@host or redis://USER:PASSWORD@host"},
	{"WRONGPASS ", "rejects the user or the password of the URL: check both against ACL LIST on the server"},
	{"LOADING ", "is loading its data: wait; INFO persistence there says how long it will take"},
	{"READONLY ", "is a replica: give the address of its primary, or of the sentinels as redis-sentinel://host/master"},
	{"NOREPLICAS ", "rejects writes: it has fewer replicas than its min-replicas-to-write"},
	{"MISCONF ", "rejects writes, since it cannot write to its disk"},
	{"MASTERDOWN ", "is a replica that has lost its primary: give the address of the primary, or of the sentinels as redis-sentinel://host/master"},
	{"MOVED ", "is part of a cluster: write redis-cluster:// instead of redis://"},
	{"CROSSSLOT ", "is part of a cluster: write redis-cluster:// instead of redis://"},
	{"cluster support disabled", "is no cluster: write redis:// instead of redis-cluster://"},
	{"unknown command 'sentinel'", "is no sentinel: write redis:// instead of redis-sentinel://, or give the port of the sentinels, usually 26379"},
	{`"HTTP/`, "is not Redis, it speaks HTTP: check the port"},
	{"certificate", "has a certificate that this machine does not trust, or of another name: use the name that is in the certificate, and add " +
		"its CA to those of this machine or name it in SSL_CERT_FILE"},
	{"connection refused", "refuses connections: is Redis running there, and does it listen on that address?"},
	{"no such host", "cannot be found by its name: check the name, and the DNS"},
}

// Explain says what a failed Check means and what to change, with the address. The
// error keeps its class.
func (b *Backend) Explain(ctx context.Context, err error) error {
	if err == nil || b.embedded || errors.Is(err, ErrIncompatible) || ctx.Err() == context.Canceled {
		return err
	}
	if means := b.meaning(ctx, err); means != "" {
		return &explainedError{fmt.Sprintf("redis at %s %s (%s)", strings.Join(b.addrs, ","), means,
			causeOf(err)), err}
	}
	return err
}

// causeOf is what the server or the network said, without the class.
func causeOf(err error) error {
	var s *storeError
	for errors.As(err, &s) {
		err = s.cause
	}
	return err
}

func (b *Backend) meaning(ctx context.Context, err error) string {
	text := err.Error()
	for _, e := range explanations {
		if strings.Contains(text, e.said) {
			return e.means
		}
	}
	var answer redis.Error
	if errors.As(err, &answer) || len(b.addrs) == 0 {
		return ""
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return "cannot be reached: check the address, and firewalls in between"
	}
	return b.look(ctx, b.addrs[0])
}

// look connects to a server that neither answers nor rejects, to find out what it is.
func (b *Backend) look(ctx context.Context, addr string) string {
	// The Check's own time is mostly over by now.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*probeAnswer)
	defer cancel()
	answer, err := ask(ctx, b.network, addr, "PING\r\n")
	switch {
	case err != nil:
		return ""
	case b.tls && (strings.HasPrefix(answer, "+") || strings.HasPrefix(answer, "-")):
		return "speaks plain text: write redis:// instead of rediss://, or enable TLS there"
	case strings.HasPrefix(answer, "HTTP/"):
		return "is not Redis, it speaks HTTP: check the port"
	case !b.tls && (strings.HasPrefix(answer, "\x15\x03") || speaksTLS(ctx, b.network, addr)):
		return "speaks TLS: write rediss:// instead of redis://"
	case answer == "":
		return "accepts connections but does not answer: look for CLIENT PAUSE, a stopped process (SIGSTOP), a long script (SLOWLOG GET) or an overloaded server"
	}
	return ""
}

// ask sends a line and returns the beginning of the answer; empty: there was none in
// time. It fails where nothing can be sent.
func ask(ctx context.Context, network, addr, line string) (string, error) {
	c, err := (&net.Dialer{Timeout: probeAnswer}).DialContext(ctx, network, addr)
	if err != nil {
		return "", err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(probeAnswer))
	if _, err := c.Write([]byte(line)); err != nil {
		return "", err
	}
	buf := make([]byte, 64)
	n, err := c.Read(buf)
	var late net.Error
	if n == 0 && !(errors.As(err, &late) && late.Timeout()) {
		return "closed", nil
	}
	return string(buf[:n]), nil
}

// speaksTLS reports whether a server answers a TLS handshake, whatever its certificate.
func speaksTLS(ctx context.Context, network, addr string) bool {
	d := tls.Dialer{
		NetDialer: &net.Dialer{Timeout: probeAnswer},
		Config:    &tls.Config{InsecureSkipVerify: true}, // #nosec G402 -- nothing is sent but the handshake
	}
	ctx, cancel := context.WithTimeout(ctx, probeAnswer)
	defer cancel()
	c, err := d.DialContext(ctx, network, addr)
	if err == nil {
		_ = c.Close()
		return true
	}
	var alert tls.AlertError
	return errors.As(err, &alert) || strings.Contains(err.Error(), "remote error: tls")
}
