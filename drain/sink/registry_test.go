package sink

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
)

type nowhere struct{}

var _ Sink = nowhere{}

func (nowhere) Open(context.Context) error            { return nil }
func (nowhere) Write(context.Context, []*Batch) error { return nil }
func (nowhere) Close(context.Context) error           { return nil }
func (nowhere) Caps() Caps                            { return Caps{} }

var registry = Registry{
	"null": func(u *url.URL) (Sink, error) {
		if _, err := Options(u); err != nil {
			return nil, err
		}
		return nowhere{}, nil
	},
	"file": func(u *url.URL) (Sink, error) {
		if _, err := Options(u, "max_size", "other"); err != nil {
			return nil, err
		}
		return nowhere{}, nil
	},
	"http": func(*url.URL) (Sink, error) { return nil, errors.New("names no host") },
}

func TestRegistryMakesTheSinkOfAScheme(t *testing.T) {
	t.Parallel()
	for _, raw := range []string{"null:", "NULL:", "file:///a?max_size=1&other=2"} {
		if s, err := registry.New(raw); s == nil || err != nil {
			t.Errorf("%s: got %v, %v", raw, s, err)
		}
	}
}

func TestRegistryErrorsSayWhatToChange(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ raw, want string }{
		{"", "sink URL has no scheme: want one of file: http: null:"},
		{"/var/log/x", "sink URL has no scheme: want one of file: http: null:"},
		{"gopher://h", `unknown sink scheme "gopher": want one of file: http: null:`},
		{"http://u:hunter2@h/p?k=hunter2", "sink http://…@h/…?…: names no host"},
		{"http://u:hunter2/x@h", "sink URL is malformed: invalid port (special characters of a password are written %XX)"},
		{"http://u:hunter2%x@h", "sink URL is malformed: invalid URL escape (special characters of a password are written %XX)"},
		{"null:?x=1", `sink null:?…: unknown option "x": it takes none`},
		{"file:///a?max_size=1&max-size=2", `sink file:///a?…: unknown option "max-size": did you mean max_size? known are max_size, other`},
		{"file:///a?max_size=1&max_size=2", `sink file:///a?…: option "max_size" is given twice`},
		{"file:///a?max_size=1;x=2", "sink file:///a?…: options are malformed: invalid semicolon separator in query"},
		{"file:///a?x=%zz", "sink file:///a?…: options are malformed: invalid URL escape"},
	} {
		_, err := registry.New(row.raw)
		if err == nil || err.Error() != row.want {
			t.Errorf("%s: got %v, want %s", row.raw, err, row.want)
		}
	}
}

func TestRedactKeepsWhatIdentifiesASink(t *testing.T) {
	t.Parallel()
	for _, row := range []struct{ raw, want string }{
		{"stdout:", "stdout:"},
		{"file:///var/lib/a%20b.ndjson", "file:///var/lib/a%20b.ndjson"},
		{"file:///a?max_size=100MB", "file:///a?…"},
		{"https://h:8443/in/hunter2", "https://h:8443/…"},
		{"https://user@h/", "https://…@h/"},
		{"https://user:hunter2@h/in?token=hunter2#hunter2", "https://…@h/…?…"},
		{"http:user:hunter2@h", "http:…"},
		{"http:/user:hunter2@h", "http:…"},
		{"http:///user:hunter2@h", "http:…"},
		{"kafka:/h/hunter2?a=hunter2", "kafka:…"},
		{"http://user:80/hunter2@h/", "http://user:80/…"},
		{"http://user:hunter2 @h", "(malformed URL)"},
		{"user:hunter2@h:1", "user:…"},
		{"//user:hunter2@h", "(malformed URL)"},
		{"hunter2", "(malformed URL)"},
		{"https://u:{file:/run/p}@h/{env:A}?k={env:B}", "https://…@h/…?…"},
		{"file:///var/{env:HOST}/a.ndjson", "file:///var/…/a.ndjson"},
	} {
		if got := Redact(row.raw); got != row.want {
			t.Errorf("%s: got %s, want %s", row.raw, got, row.want)
		}
	}
}

func FuzzRedact(f *testing.F) {
	f.Add("https://%s@h/in")
	f.Add("https://u:%s@h/in?x#y")
	f.Add("https://u:p@h/in?%s#%s")
	f.Add("http:u:%s@h")
	f.Add("http:/u:%s@h")
	f.Add("http:///u:%s@h")
	for _, seed := range redactSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, form string) {
		// Wherever a user, password, query or fragment stands.
		const secret = "hunter2"
		raw := strings.ReplaceAll(form, "%s", secret)
		u, err := url.Parse(raw)
		if err == nil && (u.Scheme == "file" && u.Host == "" && strings.Contains(u.Path, secret) || strings.Contains(u.Host, secret) || strings.Contains(u.Scheme, secret)) {
			return
		}
		if got := Redact(raw); strings.Contains(got, secret) {
			t.Fatalf("%q became %q", raw, got)
		}
		if _, err := registry.New(raw); err != nil && strings.Contains(err.Error(), secret) && !strings.Contains(err.Error(), "option") {
			t.Fatalf("%q is rejected with %q", raw, err)
		}
	})
}

func TestLinkLocalAddressesAreRejectedInEverySpelling(t *testing.T) {
	t.Parallel()
	for address, rejected := range map[string]bool{
		"169.254.169.254:80": true, "[fe80::1%eth0]:80": true, "[::ffff:169.254.0.1]:80": true, "[64:ff9b::a9fe:a9fe]:80": true,
		"127.0.0.1:80": false, "10.1.2.3:80": false, "[fd00::1]:80": false, "[::1]:80": false, "8.8.8.8:443": false,
	} {
		if got := rejectLinkLocal("tcp", address, nil) != nil; got != rejected {
			t.Errorf("%s: rejected is %t, want %t", address, got, rejected)
		}
	}
}
