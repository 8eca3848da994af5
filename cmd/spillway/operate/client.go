package operate

import (
	"bytes"
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// Connection are the flags that say which service a command talks to.
type Connection struct {
	Admin        string        `name:"admin" group:"Connection:" default:"http://127.0.0.1:8081" help:"URL of the admin port."`
	APIToken     string        `name:"api-token" group:"Connection:" placeholder:"TOKEN" help:"Token of the admin port, not its hash. The environment variable SPILLWAY_API_TOKEN hides it from the process list."`
	APITokenFile string        `name:"api-token-file" group:"Connection:" placeholder:"FILE" help:"File whose first line is the token of the admin port."`
	AdminCA      string        `name:"admin-ca" group:"Connection:" placeholder:"FILE" help:"Certificates, a PEM file, one of which signed that of an https admin port. Without one, those of the system."`
	Timeout      time.Duration `group:"Connection:" default:"10s" help:"Timeout of a request. Those that change something have 2m or more."`

	opened *client `kong:"-"`
}

// Settings are those flags that have an environment variable.
func (c *Connection) Settings() any { return c }

const (
	maxAnswer  = 16 << 20 // bytes; the largest answer is 1,000 partitions or 128 payloads of 32 KiB
	maxToken   = 4 << 10
	actTimeout = 2 * time.Minute // a purge or replay may be long; the service ends it then
)

// client talks to one admin port.
type client struct {
	base    string // without user and password
	token   string
	timeout time.Duration // of a request that reads
	http    *http.Client
}

// open checks the flags, once. It sends nothing.
func (c *Connection) open() (*client, error) {
	if c.opened != nil {
		return c.opened, nil
	}
	u, err := url.Parse(c.Admin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, misuse("admin: not a URL: write one such as http://127.0.0.1:8081")
	}
	if c.Timeout < 10*time.Millisecond || c.Timeout > time.Hour {
		return nil, misuse("timeout: %v: want 10ms to 1h", c.Timeout)
	}
	token := c.APIToken
	if token == "" && c.APITokenFile != "" {
		if token, err = readToken(c.APITokenFile); err != nil {
			return nil, misuse("api_token_file: %w", err)
		}
	}
	if password, ok := u.User.Password(); ok && token == "" {
		token = password
	}
	if strings.HasPrefix(token, "sha256:") {
		return nil, misuse("api_token: this is the hash, which serve has; the token itself is what spillway token printed beside it")
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, misuse("api_token: it has a space or another character that no token has")
	}
	u.User = nil
	u.RawQuery = ""
	u.Fragment = ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.AdminCA != "" {
		if transport.TLSClientConfig, err = trust(c.AdminCA); err != nil {
			return nil, misuse("admin_ca: %w", err)
		}
	}
	c.opened = &client{
		base: strings.TrimSuffix(u.String(), "/"), token: token, timeout: c.Timeout,
		http: &http.Client{
			Transport: transport,
			// A redirect would carry the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}
	return c.opened, nil
}

func readToken(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxToken))
	if err != nil {
		return "", err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	if line = strings.TrimSpace(line); line == "" {
		return "", fmt.Errorf("the first line of %s is empty", path)
	}
	return line, nil
}

func trust(path string) (*tls.Config, error) {
	pem, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%s has no certificate in PEM form", path)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}

func (c *client) exchange(ctx context.Context, method, path string, body []byte, header http.Header,
	timeout time.Duration, to any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := c.send(ctx, method, path, body, header)
	if err != nil {
		return nil, c.explain(ctx, method, timeout, err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, c.explain(ctx, method, timeout, err)
	case len(answer) > maxAnswer:
		return nil, fmt.Errorf("%s answered with more than %d MiB", c.base, maxAnswer>>20)
	case res.StatusCode/100 != 2:
		return nil, c.rejected(res, answer)
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return nil, fmt.Errorf("%s: %s", c.base, notSpillway)
	}
	return answer, nil
}

func (c *client) send(ctx context.Context, method, path string,
	body []byte, header http.Header) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, header)
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// A call is a request of the API that a command prepares. The first mistake in the command's
// flags and arguments is its error: then nothing is sent.
type call struct {
	*client
	path  string
	query url.Values
	err   error
}

// call is that of a route.
func (c *Connection) call(path string) *call {
	api, err := c.open()
	return &call{api, path, url.Values{}, err}
}

// namespace is the call of a namespace's route.
func (c *Connection) namespace(name string) *call {
	call := c.call("/api/v1/namespaces/" + name)
	return call.check(validNamespace(name))
}

// queue is the call of a queue's route, or of its namespace's if name is empty.
func (c *Connection) queue(namespace, name string) *call {
	call := c.namespace(namespace)
	if name == "" {
		return call
	}
	if !partition.ValidQueue(name) {
		call.check(misuse("%s is not the name of a queue", quote(name)))
	}
	return call.at("/queues/" + name)
}

// oneQueue is the call of a queue's route.
func (c *Connection) oneQueue(namespace, name string) *call {
	return c.queue(namespace, name).named("queue", name)
}

func validNamespace(name string) error {
	if !partition.ValidNamespace(name) {
		return misuse("%s is not the name of a namespace", quote(name))
	}
	return nil
}

// validPartition takes no name for that of no partition.
func validPartition(name string) error {
	if name != "" && !partition.ValidPartition(name) {
		return misuse("%s is not the name of a partition", quote(name))
	}
	return nil
}

func (c *call) check(err error) *call {
	c.err = cmp.Or(c.err, err)
	return c
}

// named checks that the argument that says what is not empty.
func (c *call) named(what, name string) *call {
	if name == "" {
		c.check(misuse("the name of the %s is empty", what))
	}
	return c
}

// within checks that the value of a flag is 1 to most.
func (c *call) within(flag string, n, most int) *call {
	if n < 1 || n > most {
		c.check(misuse("%s: %d: want 1 to %d", flag, n, most))
	}
	return c
}

// at is the call of a route below.
func (c *call) at(route string) *call {
	c.path += route
	return c
}

// set sets a parameter, unless it is empty.
func (c *call) set(key, value string) *call {
	if value != "" {
		c.query.Set(key, value)
	}
	return c
}

// on sets a parameter to 1 if is.
func (c *call) on(key string, is bool) *call {
	if is {
		c.query.Set(key, "1")
	}
	return c
}

// limit is the parameter of that name.
func (c *call) limit(n, most int) *call { return c.within("limit", n, most).set("limit", digits(n)) }

// of asks for one namespace, or for all without a name.
func (c *call) of(namespace string) *call {
	if namespace != "" {
		c.check(validNamespace(namespace))
	}
	return c.set("namespace", namespace)
}

// get reads the answer into to, and returns it as it came.
func (c *call) get(ctx context.Context, to any) (json.RawMessage, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.exchange(ctx, http.MethodGet, c.target(), nil, nil, c.timeout, to)
}

// target is the path with the parameters.
func (c *call) target() string {
	if len(c.query) == 0 {
		return c.path
	}
	return c.path + "?" + c.query.Encode()
}

// post changes something.
func (c *call) post(ctx context.Context, body, to any) (json.RawMessage, error) {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // a job may hold HTML
	if err := cmp.Or(c.err, e.Encode(body)); err != nil {
		return nil, err
	}
	return c.exchange(ctx, http.MethodPost, c.path, bytes.TrimSpace(text.Bytes()), nil, max(c.timeout, actTimeout), to)
}

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

// answered is the error that a service answered; without a code or status where err is another.
func answered(err error) apiError {
	e := new(apiError)
	errors.As(err, &e)
	return *e
}

// explain says what is wrong with the connection, and what to change.
func (c *client) explain(ctx context.Context, method string, timeout time.Duration,
	err error) error {
	if ctx.Err() != nil && errors.Is(ctx.Err(), context.Canceled) {
		return errors.New("interrupted")
	}
	unknown := ""
	if method != http.MethodGet {
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
		return noAnswer{
			fmt.Errorf("nothing listens at %s: start spillway serve there, or name its admin port with --admin or SPILLWAY_ADMIN", c.base),
		}
	case errors.As(err, &record), strings.Contains(err.Error(),
		"server gave HTTP response to HTTPS client"):
		hint = ": the port speaks plain HTTP: write http:// in --admin"
	case errors.As(err, &authority):
		hint = ": name the authority's certificate with --admin-ca"
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, syscall.ECONNRESET):
		hint = ": the connection ended before the answer" + unknown
	}
	return noAnswer{fmt.Errorf("connect to %s: %s%s", c.base, escape(err.Error()), hint)}
}

// rejected is the error of an answer that is not 200.
func (c *client) rejected(res *http.Response, answer []byte) error {
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
		e.text = strings.Replace(message, "see /readyz", "see "+c.base+"/readyz",
			1) + " (store_unavailable)"
	default:
		e.text = fmt.Sprintf("%s (%s)", message, escape(failure.Code))
	}
	return e
}
