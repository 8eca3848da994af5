package sink

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptrace"
	"net/netip"
	"net/textproto"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// NewTransport is what a sink posts to its HTTP target with. Proxies of the
// environment are not used, an answer is never inflated, link-local addresses are
// rejected, and ctx bounds the rest. It is for RoundTrip.
func NewTransport() *http.Transport {
	dialer := &net.Dialer{Timeout: 5 * time.Second, Control: rejectLinkLocal}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		TLSHandshakeTimeout:    5 * time.Second,
		MaxIdleConnsPerHost:    64,
		IdleConnTimeout:        30 * time.Second, // before usual servers close theirs: 60 s and more
		MaxResponseHeaderBytes: 64 << 10,
		DisableCompression:     true,
	}
}

// RoundTrip makes a request with a transport of NewTransport: a client would follow
// redirects and repeat the URL in its errors. The error IsUnsent when there was no
// connection to send it on. The transport must not be able to repeat the request once
// bytes of it were written: no GET, and no Idempotency-Key with a GetBody.
func RoundTrip(t *http.Transport, r *http.Request) (*http.Response, error) {
	connected := false
	trace := &httptrace.ClientTrace{
		// The transport asks again only when it wrote nothing on the connection before.
		GetConn: func(string) { connected = false },
		GotConn: func(httptrace.GotConnInfo) { connected = true },
	}
	response, err := t.RoundTrip(r.WithContext(httptrace.WithClientTrace(r.Context(), trace)))
	if err != nil && !connected {
		return nil, Unsent(err)
	}
	return response, err
}

// An Answer is what a target answered.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte // the beginning, as many bytes as Send was told to read
}

// Send makes a request by RoundTrip, as "spillway", and reads at most so many bytes of the
// answer's body: after a longer one the connection is not used again. verb and host are
// those of FaultError, which makes the errors. Where the body broke off, there is an error
// and an Answer, with the Status and what came.
func Send(t *http.Transport, r *http.Request, verb, host string, maxBytes int64) (Answer, error) {
	r.Header.Set("User-Agent", "spillway")
	response, err := RoundTrip(t, r)
	if err != nil {
		return Answer{}, FaultError(r.Context(), verb, host, err)
	}
	defer func() { _ = response.Body.Close() }()
	a := Answer{Status: response.StatusCode, Header: response.Header}
	if a.Status < 200 {
		return a, nil // after 101 the body is the connection, which no context ends
	}
	if a.Body, err = io.ReadAll(io.LimitReader(response.Body, maxBytes)); err != nil {
		return a, FaultError(r.Context(), verb, host, err)
	}
	return a, nil
}

// FaultError is the error of a round trip that got no usable answer: plain, or that of
// ctx when ctx has ended. verb and host begin its text, as in "put to host:9000".
// Nothing of what the peer sent is in it: the packages below quote it, and it may echo
// the request. It IsUnsent if err is.
func FaultError(ctx context.Context, verb, host string, err error) error {
	fault := faultError(ctx, verb, host, err)
	if IsUnsent(err) {
		return Unsent(fault)
	}
	return fault
}

func faultError(ctx context.Context, verb, host string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %s: %w", verb, host, ctx.Err())
	}
	var p textproto.ProtocolError
	var rejected *linkLocalError
	switch {
	case errors.As(err, &p):
		return fmt.Errorf("%s %s: malformed answer", verb, host)
	case errors.As(err, &rejected):
		return fmt.Errorf("%s %s: %w", verb, host, rejected)
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	return fmt.Errorf("%s %s: %s", verb, host,
		strings.ToValidUTF8(strings.TrimSpace(text[:min(len(text), 256)]), ""))
}

// BasicAuth is the Authorization header for the user and password of a URL; "" without a user.
func BasicAuth(user *url.Userinfo) string {
	if user == nil {
		return ""
	}
	password, _ := user.Password()
	r := http.Request{Header: http.Header{}}
	r.SetBasicAuth(user.Username(), password)
	return r.Header.Get("Authorization")
}

// ErrorCode returns a code that a target sent, such as SlowDown, as " (SlowDown)" for
// the end of an error's text. Free text could repeat the payload, so only 1 to 64
// letters, digits and "_-." pass; all else is "".
func ErrorCode(code string) string {
	if code == "" || len(code) > 64 {
		return ""
	}
	for i := range len(code) {
		c := code[i]
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '_' &&
			c != '-' && c != '.' {
			return ""
		}
	}
	return " (" + code + ")"
}

// CheckHost says what is wrong with the host and port of the URL of a sink that uses
// NewTransport. example is a right one.
func CheckHost(u *url.URL, example string) error {
	switch {
	case u.Opaque != "" || u.Hostname() == "":
		return fmt.Errorf("names no host: write %s", example)
	case u.Fragment != "":
		return errors.New("a # in the URL is written %23")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && linkLocal(ip) {
		return &linkLocalError{ip}
	}
	if strings.Contains(u.Hostname(), "%") {
		return errors.New("host has a zone, which only link-local addresses need: leave it out")
	}
	if looksNumeric(u.Hostname()) {
		return errors.New("host is a number but no address: write it as 10.0.0.1 or [fd00::1]")
	}
	if port := u.Port(); port != "" {
		if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
			return errors.New("port is not 1 to 65535")
		}
	}
	return nil
}
