package sink

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
)

// Opener makes the sink that a URL describes. It checks the URL and touches
// nothing else: the target may be down, Open is where that shows.
type Opener func(u *url.URL) (Sink, error)

// Registry maps URL schemes to what makes their sinks.
type Registry map[string]Opener

// New makes the sink of a URL such as "file:///var/lib/spillway/kart.ndjson".
// Its errors name what to change and hold no secret of the URL.
func (r Registry) New(rawURL string) (Sink, error) {
	u, err := url.Parse(rawURL)
	if err != nil {
		return nil, fmt.Errorf("sink URL is malformed: %s (special characters of a password are written %%XX)",
			parseFault(err))
	}
	if u.Scheme == "" {
		return nil, fmt.Errorf("sink URL has no scheme: want one of %s", r.known())
	}
	open, ok := r[u.Scheme]
	if !ok {
		if near := Nearest(u.Scheme, slices.Sorted(maps.Keys(r))); near != "" {
			return nil, fmt.Errorf("unknown sink scheme %q: did you mean %s:? want one of %s",
				u.Scheme, near, r.known())
		}
		return nil, fmt.Errorf("unknown sink scheme %q: want one of %s", u.Scheme, r.known())
	}
	s, err := open(u)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", Redact(rawURL), err)
	}
	return s, nil
}

func (r Registry) known() string {
	return strings.Join(slices.Sorted(maps.Keys(r)), ": ") + ":"
}

// Options returns the query options of a sink URL by name. An option that is
// not among known, or given twice, is an error that names it.
func Options(u *url.URL, known ...string) (map[string]string, error) {
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("options are malformed: %s", parseFault(err))
	}
	options := make(map[string]string, len(query))
	for _, name := range slices.Sorted(maps.Keys(query)) {
		switch {
		case !slices.Contains(known, name) && len(known) == 0:
			return nil, fmt.Errorf("unknown option %q: it takes none", name)
		case !slices.Contains(known, name) && Nearest(name, known) != "":
			return nil, fmt.Errorf("unknown option %q: did you mean %s? known are %s", name, Nearest(name, known),
				strings.Join(known, ", "))
		case !slices.Contains(known, name):
			return nil, fmt.Errorf("unknown option %q: known are %s", name, strings.Join(known, ", "))
		case len(query[name]) > 1:
			return nil, fmt.Errorf("option %q is given twice", name)
		}
		options[name] = query[name][0]
	}
	return options, nil
}

// TLS returns how a sink connects, by its options tls=1, tls_ca=/FILE (default: the system's
// authorities), and tls_cert=/FILE with tls_key=/FILE; nil: not by TLS. The certificate is read
// for each connection, so that one that was renewed is used.
func TLS(o map[string]string) (*tls.Config, error) {
	ca := o["tls_ca"]
	cert := o["tls_cert"]
	key := o["tls_key"]
	switch {
	case o["tls"] != "" && o["tls"] != "1":
		return nil, fmt.Errorf("tls: %q, want 1 or nothing", o["tls"])
	case o["tls"] == "" && ca+cert+key != "":
		return nil, errors.New("tls_ca, tls_cert and tls_key need tls=1")
	case (cert == "") != (key == ""):
		return nil, errors.New("tls_cert and tls_key go together")
	case o["tls"] == "":
		return nil, nil
	}
	c := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		authorities, err := os.ReadFile(ca) // #nosec G304 -- the operator's
		if c.RootCAs = x509.NewCertPool(); err != nil || !c.RootCAs.AppendCertsFromPEM(authorities) {
			return nil, errors.New("tls_ca is not a file of certificates")
		}
	}
	if cert != "" {
		c.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			pair, err := tls.LoadX509KeyPair(cert, key)
			if err != nil {
				return nil, errors.New("tls_cert and tls_key are not files of a certificate and its key")
			}
			return &pair, nil
		}
	}
	return c, nil
}

// Redact returns a sink URL fit for logs: without user, password, options,
// fragment and a server's path, which is where secrets are kept. A placeholder that
// remains is shown as "…".
func Redact(rawURL string) string {
	u, err := url.Parse(maskPlaceholders(rawURL))
	switch {
	case err != nil || u.Scheme == "":
		return "(malformed URL)"
	case u.Opaque != "", u.Scheme != "file" && u.Host == "" && u.Path != "":
		// "http:user:password@host" and "http:/user:password@host" have no authority that
		// could be told apart.
		return u.Scheme + ":…"
	}
	clean := url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path, RawPath: u.RawPath}
	if u.Scheme != "file" && u.Path != "" && u.Path != "/" {
		// Webhooks keep their secret in the path. And a '/' in a password ends
		// the authority early: the rest looks like a path.
		clean.Path, clean.RawPath = "/…", ""
	}
	text := strings.ReplaceAll(clean.String(), url.PathEscape("…"), "…")
	if u.User != nil {
		text = strings.Replace(text, "://", "://…@", 1)
	}
	if u.RawQuery != "" {
		text += "?…"
	}
	return text
}

// parseFault says what was wrong with a URL. The package url quotes the
// offending part, which can be a piece of a password; the text before it tells
// enough.
func parseFault(err error) string {
	if e, ok := err.(*url.Error); ok {
		err = e.Err
	}
	text, _, _ := strings.Cut(err.Error(), `"`)
	return strings.TrimSpace(text)
}
