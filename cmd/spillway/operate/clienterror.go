package operate

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"syscall"
	"time"
)

const notSpillway = "not an answer of Spillway's admin port; is --admin that port, and not the data port?"

// noAnswer is an error of a service that cannot be reached or does not answer.
type noAnswer struct{ error }

func (e noAnswer) Unwrap() error { return e.error }

// apiError is an answer that is an error.
type apiError struct {
	status        int
	code, message string // of the service
	text          string // for people
}

func (e *apiError) Error() string { return e.text }

// explain says what is wrong with the connection, and what to change.
func (c *client) explain(ctx context.Context, method string, timeout time.Duration, err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("interrupted")
	}
	unknown := ""
	if method == http.MethodPost {
		unknown = "; whether it was done is unknown: see spillway audit"
	}
	if ctx.Err() != nil {
		return noAnswer{fmt.Errorf("%s does not answer within %v%s", c.base, timeout, unknown)}
	}
	if wrapped := new(url.Error); errors.As(err, &wrapped) {
		err = wrapped.Err // without "Get" and the URL, which our text has
	}
	hint := ""
	var record tls.RecordHeaderError
	var authority x509.UnknownAuthorityError
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return noAnswer{fmt.Errorf("nothing listens at %s: start spillway serve there, or name its admin port with --admin or SPILLWAY_ADMIN", c.base)}
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		hint = ": the port speaks plain HTTP: write http:// in --admin"
	case errors.As(err, &authority):
		hint = ": name the authority's certificate with --admin-ca"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		hint = ": the connection ended before the answer" + unknown
	}
	return noAnswer{fmt.Errorf("connect to %s: %s%s", c.base, escape(err.Error()), hint)}
}

// refused is the error of an answer that is not 200.
func (c *client) refused(res *http.Response, answer []byte) error {
	var failure struct {
		Code    string `json:"error"`
		Message string `json:"message"`
	}
	if err := json.Unmarshal(answer, &failure); err != nil || failure.Code == "" {
		text := fmt.Sprintf("%s answered %d: %s", c.base, res.StatusCode, notSpillway)
		if strings.Contains(string(answer), "HTTP request to an HTTPS server") {
			text = c.base + " speaks TLS: write https:// in --admin"
		}
		return &apiError{status: res.StatusCode, text: text}
	}
	e := &apiError{status: res.StatusCode, code: failure.Code, message: failure.Message}
	lines := strings.Split(failure.Message, "\n") // one a mistake in a configuration
	for i := range lines {
		lines[i] = escape(lines[i])
	}
	message := strings.Join(lines, "\n")
	switch {
	case e.status == http.StatusUnauthorized && c.token == "":
		e.text = c.base + " requires a token: set --api-token-file, or SPILLWAY_API_TOKEN"
	case e.status == http.StatusUnauthorized:
		e.text = c.base + " does not know this token: check --api-token-file, or SPILLWAY_API_TOKEN"
	case e.code == "forbidden":
		e.text = "the role of this token does not allow it: " + message
	case e.code == "no_such_route" && strings.HasPrefix(message, "no such route"):
		e.text = c.base + " has no such route: is it the admin port (default 8081) of a service of this version?"
	case e.code == "store_unavailable":
		e.text = strings.Replace(message, "see /readyz", "see "+c.base+"/readyz", 1) + " (store_unavailable)"
	default:
		e.text = fmt.Sprintf("%s (%s)", message, escape(failure.Code))
	}
	return e
}
