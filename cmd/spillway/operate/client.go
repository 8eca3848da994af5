package operate

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
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

// openAt is open for a command about a namespace; path is the namespace's route.
func (c *Connection) openAt(namespace string) (api *client, path string, err error) {
	if api, err = c.open(); err != nil {
		return nil, "", err
	}
	path, err = namespacePath(namespace)
	return api, path, err
}

// open checks the flags. It sends nothing.
func (c *Connection) open() (*client, error) {
	u, err := url.Parse(c.Admin)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, usageError{errors.New("admin: not a URL: write one such as http://127.0.0.1:8081")}
	}
	if c.Timeout < 10*time.Millisecond || c.Timeout > time.Hour {
		return nil, usageError{fmt.Errorf("timeout: %v: want 10ms to 1h", c.Timeout)}
	}
	token := c.APIToken
	if token == "" && c.APITokenFile != "" {
		if token, err = readToken(c.APITokenFile); err != nil {
			return nil, usageError{fmt.Errorf("api_token_file: %w", err)}
		}
	}
	if password, ok := u.User.Password(); ok && token == "" {
		token = password
	}
	if strings.HasPrefix(token, "sha256:") {
		return nil, usageError{errors.New("api_token: this is the hash, which serve has; the token itself is what spillway token printed beside it")}
	}
	if strings.ContainsFunc(token, func(r rune) bool { return r <= ' ' || r > '~' }) {
		return nil, usageError{errors.New("api_token: it has a space or another character that no token has")}
	}
	u.User, u.RawQuery, u.Fragment = nil, "", ""
	transport := http.DefaultTransport.(*http.Transport).Clone()
	if c.AdminCA != "" {
		if transport.TLSClientConfig, err = trust(c.AdminCA); err != nil {
			return nil, usageError{fmt.Errorf("admin_ca: %w", err)}
		}
	}
	return &client{
		base: strings.TrimSuffix(u.String(), "/"), token: token, timeout: c.Timeout,
		http: &http.Client{
			Transport: transport,
			// A redirect would carry the token elsewhere.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
	}, nil
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

// get reads a route into to, and returns the answer as it came.
func (c *client) get(ctx context.Context, path string, query url.Values, to any) (json.RawMessage, error) {
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	return c.call(ctx, http.MethodGet, path, nil, c.timeout, to)
}

// post changes something.
func (c *client) post(ctx context.Context, path string, body, to any) (json.RawMessage, error) {
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	return c.call(ctx, http.MethodPost, path, text, max(c.timeout, actTimeout), to)
}

func (c *client) call(ctx context.Context, method, path string, body []byte, timeout time.Duration, to any) (json.RawMessage, error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	res, err := c.send(ctx, method, path, body)
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
	case res.StatusCode != http.StatusOK:
		return nil, c.refused(res, answer)
	}
	if err := json.Unmarshal(answer, to); err != nil {
		return nil, fmt.Errorf("%s: %s", c.base, notSpillway)
	}
	return answer, nil
}

func (c *client) send(ctx context.Context, method, path string, body []byte) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	return c.http.Do(req)
}

// namespacePath is the route of a namespace, or an error if no namespace can have
// that name.
func namespacePath(namespace string) (string, error) {
	if !partition.ValidNamespace(namespace) {
		return "", usageError{fmt.Errorf("%s is not the name of a namespace", quote(namespace))}
	}
	return "/api/v1/namespaces/" + namespace, nil
}

// namespaceQuery asks for one namespace, or for all without a name.
func namespaceQuery(namespace string) (url.Values, error) {
	if namespace == "" {
		return url.Values{}, nil
	}
	_, err := namespacePath(namespace)
	return url.Values{"namespace": {namespace}}, err
}

// partitionPath is the route of a partition, or of its namespace if name is empty.
func partitionPath(namespace, name string) (string, error) {
	path, err := namespacePath(namespace)
	if err != nil || name == "" {
		return path, err
	}
	if !partition.ValidPartition(name) {
		return "", usageError{fmt.Errorf("%s is not the name of a partition", quote(name))}
	}
	return path + "/partitions/" + name, nil
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
