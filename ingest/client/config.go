package spillway

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// ReporterConfig is how a Reporter works. A zero field means its default, None a duration of 0.
type ReporterConfig struct {
	// Namespace that the entries go to; default "default".
	Namespace string
	// Token of the namespace, sent as a bearer token; default none.
	Token string

	// Batch is how many entries make a request, 1 to 1000; default 128, which is
	// what the service hands to a sink. BatchBytes bounds their payloads;
	// default 256 KiB.
	Batch      int
	BatchBytes int
	// Linger is how long an entry waits for others to fill a request; default 1s.
	Linger time.Duration

	// Queue bounds the entries that wait, QueueBytes their payloads; default 10,000
	// and 32 MiB. One partition may have half of each. The oldest make room. At most
	// InFlight requests of a Batch each are outside of the queue.
	Queue      int
	QueueBytes int
	// MaxEntry bounds one payload; default 32 KiB, as the service's.
	MaxEntry int
	// MaxAge is how old an entry may get here; default 3m, as the service's; None: any age.
	MaxAge time.Duration

	// InFlight is how many requests may be on their way at once; default 4. Two of
	// them never carry the same partition.
	InFlight int
	// Timeout bounds one attempt; default 10s.
	Timeout time.Duration
	// Attempts is how often a request is tried that is answered 408, 429, 500 or what is not of Spillway;
	// default 4. What waits for a service that is away, or cannot store it now, is tried until
	// it is too old. Between attempts it waits a random time between 0 and
	// min(BackoffMax, BackoffBase·2^n); default 100ms and 5s, and at least as long as the service's
	// Retry-After says.
	Attempts                int
	BackoffBase, BackoffMax time.Duration
	// BreakAfter is after how many failures in a row only one request a ProbeEvery is
	// tried; default 5 and 1s.
	BreakAfter int
	ProbeEvery time.Duration
	// CompressFrom is the size in bytes from which a body is sent as gzip; default
	// 1024. A negative one turns that off.
	CompressFrom int

	// Transport carries the requests; default one of its own, made like
	// http.DefaultTransport. clienttest has one for tests.
	Transport http.RoundTripper
	// OnDrop is told how many entries were dropped for a reason, OnError what went
	// wrong, each at most once a second; without OnError slog warns of it, of each kind at most
	// once a minute. They run on a goroutine of their own, one after the other, so a slow one
	// delays nothing but the next. They must not call Close, which waits for them.
	OnDrop  func(reason Reason, n int64)
	OnError func(err error)

	keyWindow time.Duration // of repeats under a key, after the first attempt that may have stored entries
}

// keyWindow is less than the 2m for which the service remembers a key, by the 9s that it may
// take to store what it was sent.
const keyWindow = 110 * time.Second

// None, in a field whose zero means its default, is a duration of 0.
const None time.Duration = -1

// fill puts a default in place of a zero, and a zero in place of None.
func fill[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	} else if any(*field) == any(None) {
		*field = zero
	}
}

// noMaxAge is longer than any entry waits.
const noMaxAge = 100 * 365 * 24 * time.Hour

func (c *ReporterConfig) fill() {
	fill(&c.Namespace, "default")
	fill(&c.Batch, 128)
	fill(&c.BatchBytes, 256<<10)
	fill(&c.Queue, 10_000)
	fill(&c.QueueBytes, 32<<20)
	fill(&c.MaxEntry, 32<<10)
	fill(&c.InFlight, 4)
	fill(&c.Attempts, 4)
	fill(&c.BreakAfter, 5)
	fill(&c.CompressFrom, 1024)
	fill(&c.Linger, time.Second)
	fill(&c.MaxAge, 3*time.Minute)
	fill(&c.MaxAge, noMaxAge)
	fill(&c.Timeout, 10*time.Second)
	fill(&c.BackoffBase, 100*time.Millisecond)
	fill(&c.BackoffMax, 5*time.Second)
	fill(&c.ProbeEvery, time.Second)
	fill(&c.keyWindow, keyWindow)
	if c.Transport == nil {
		c.Transport = newTransport(c.InFlight)
	}
}

func newTransport(inFlight int) http.RoundTripper {
	t, ok := http.DefaultTransport.(*http.Transport)
	if !ok {
		t = &http.Transport{Proxy: http.ProxyFromEnvironment}
	}
	t = t.Clone()
	t.MaxIdleConnsPerHost = inFlight
	return t
}

// check is called after fill.
func (c *ReporterConfig) check() error {
	switch {
	case !validName(c.Namespace, 64):
		return fmt.Errorf("spillway: namespace %q: want a letter or digit, then letters, digits, ._- up to 64",
			c.Namespace)
	case strings.ContainsFunc(c.Token, func(r rune) bool { return r <= ' ' || r > '~' }):
		return errors.New("spillway: the token holds a character that no token has")
	case c.Batch < 1 || c.Batch > 1000:
		return fmt.Errorf("spillway: batch %d: want 1 to 1000 entries", c.Batch)
	case c.MaxEntry < 1 || c.BatchBytes < c.MaxEntry:
		return fmt.Errorf("spillway: batch_bytes %d: want at least the largest entry, %d", c.BatchBytes, c.MaxEntry)
	case c.Queue < 2 || c.QueueBytes < 2*c.MaxEntry:
		return fmt.Errorf("spillway: queue of %d entries and %d bytes: want room for two of the largest at least",
			c.Queue, c.QueueBytes)
	case c.InFlight < 1 || c.Attempts < 1 || c.BreakAfter < 1:
		return errors.New("spillway: in flight, attempts and break after are 1 or more")
	case c.Linger < 0 || c.MaxAge < 0 || c.Timeout <= 0 || c.BackoffBase < 0 ||
		c.BackoffMax < c.BackoffBase || c.ProbeEvery < 0:
		return errors.New("spillway: a duration is negative, the timeout is none, or the longest back-off is less than the first")
	}
	return nil
}

// endpoint is the base URL without a path at its end.
func endpoint(base string) (string, error) {
	u, err := url.Parse(base)
	switch {
	case err != nil:
		return "", errors.New("spillway: the URL is malformed: want http://host:port or https://host:port") // the error quotes it, with its password
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return "", errors.New("spillway: the URL: want http://host:port or https://host:port")
	case u.User != nil || u.RawQuery != "" || u.Fragment != "":
		return "", fmt.Errorf("spillway: the URL of %s: a token goes into the configuration, and there is no query", u.Host)
	}
	return strings.TrimRight(u.Scheme+"://"+u.Host+u.EscapedPath(), "/"), nil
}

// validName is the rule for names of namespaces and partitions.
func validName(name string, longest int) bool {
	if name == "" || len(name) > longest {
		return false
	}
	for i := range len(name) {
		c := name[i]
		letter := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !letter && (i == 0 || c != '.' && c != '_' && c != '-') {
			return false
		}
	}
	return true
}

// validID is the rule for the id of an entry: 1 to 64 printable bytes, no space.
func validID(id string) bool {
	if id == "" || len(id) > 64 {
		return false
	}
	for i := range len(id) {
		if id[i] <= ' ' || id[i] > '~' {
			return false
		}
	}
	return true
}
