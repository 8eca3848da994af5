package sink

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"html"
	"io/fs"
	"net/url"
	"strings"
	"testing"
	"time"
)

// testSecrets has a variable and a file for each kind of content.
var testSecrets = Secrets{
	Env: func(name string) (string, bool) {
		v, ok := map[string]string{
			"PASSWORD": "p@ss:w/rd?&#%\"{env:OTHER} é\n", "OTHER": "nested", "EMPTY": "", "SHORT": "7",
		}[name]
		return v, ok
	},
	File: func(path string) ([]byte, error) {
		switch path {
		case "/run/token":
			return []byte("t0k3n\n"), nil
		case "/run/dos":
			return []byte("t0k3n\r\n"), nil
		case "/run/lines":
			return []byte("a\nb\n\n"), nil
		case "/run/empty":
			return []byte("\n"), nil
		}
		return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	},
}

func TestPlaceholdersAreFilledWithAnyBytes(t *testing.T) {
	t.Parallel()
	password, _ := testSecrets.Env("PASSWORD")
	var got *url.URL
	r := Registry{"x": func(u *url.URL) (Sink, error) { got = u; return nowhere{}, nil }}
	if _, err := r.NewWithSecrets("x://{env:OTHER}:{env:PASSWORD}@h:1/a/{env:PASSWORD}/{partition}?k={env:PASSWORD}&f={file:/run/token}{file:/run/dos}&l={file:/run/lines}", testSecrets); err != nil {
		t.Fatal(err)
	}
	p, _ := got.User.Password()
	q := got.Query()
	if got.User.Username() != "nested" || p != password || got.Host != "h:1" || got.Path != "/a/"+password+"/{partition}" ||
		q.Get("k") != password || q.Get("f") != "t0k3nt0k3n" || q.Get("l") != "a\nb\n" || len(q) != 3 || got.Fragment != "" {
		t.Errorf("got %#v", got)
	}
}

func TestAURLWithoutPlaceholdersIsPassedOn(t *testing.T) {
	t.Parallel()
	var got string
	r := Registry{"x": func(u *url.URL) (Sink, error) { got = u.String(); return nowhere{}, nil }}
	const raw = "x://h/%7Benv:A%7D?s={namespace}:{partition}"
	if s, err := r.NewWithSecrets(raw, Secrets{}); err != nil || got != raw || s != (nowhere{}) {
		t.Errorf("got %s, %v, %v", got, s, err)
	}
}

func TestPlaceholderErrorsNameTheVariableAndNoValue(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]string{
		"null://u:{env:MISSING}@h":            "sink null://…@h: {env:MISSING}: the environment has no variable MISSING",
		"null:?k={env:EMPTY}":                 "sink null:?…: {env:EMPTY}: the variable EMPTY is empty",
		"null:?k={env:A-B}":                   "sink null:?…: a placeholder names no variable: write {env:NAME}, with letters, digits and underscores",
		"null:?k={env:}":                      "sink null:?…: a placeholder names no variable: write {env:NAME}, with letters, digits and underscores",
		"null:?k={file:/none}":                "sink null:?…: {file:/none}: open /none: file does not exist",
		"null:?k={file:token}":                "sink null:?…: {file:token}: the path is relative: write it from the root",
		"null:?k={file:/run/empty}":           "sink null:?…: {file:/run/empty}: the file is empty",
		"null:?k={env:A}&l={env:B}":           "sink null:?…: {env:A}: the environment has no variable A\n{env:B}: the environment has no variable B",
		"null:?k={env:OTHER":                  "sink null:?…: a placeholder has no end: write {env:NAME} or {file:/path}",
		"null:?k={env:OTHER}{file:/run":       "sink null:?…: a placeholder has no end: write {env:NAME} or {file:/path}",
		"null://{env:OTHER}/x":                "sink null://…/…: a placeholder is in the host, which logs show: it can be in the user, password, path and options",
		"null://h:{env:OTHER}/x":              "sink (malformed URL): URL with a placeholder is malformed: invalid port; it can be in the user, password, path and options",
		"{env:OTHER}://h":                     "sink (malformed URL): URL with a placeholder is malformed: first path segment in URL cannot contain colon; it can be in the user, password, path and options",
		"null:?{env:OTHER}=1":                 `sink null:?…: unknown option "…": it takes none`,
		"null:?{env:PASSWORD}=1":              `sink null:?…: unknown option "…\n": it takes none`,
		"null:?{env:OTHER}=1&%zz":             "sink null:?…: options are malformed: invalid URL escape",
		"file:///var/{env:OTHER}/x?nested=1":  `sink file:///var/…/x?…: unknown option "…": known are max_size, other`,
		"file:///var/{env:OTHER}/x?max_size=": "",
		"unknown://u:{env:OTHER}@h":           `unknown sink scheme "unknown": want one of file: http: null:`,
	} {
		_, err := registry.NewWithSecrets(raw, testSecrets)
		got := ""
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\ngot  %s\nwant %s", raw, got, want)
		}
	}
}

// telling is a sink that puts its URL into every error.
type telling struct {
	nowhere
	u *url.URL
}

func (s telling) err() error {
	p, _ := s.u.User.Password()
	return errors.New(s.u.String() + " " + p + " " + s.u.Path + " " + s.u.Query().Get("k"))
}
func (s telling) Open(context.Context) error  { return s.err() }
func (s telling) Close(context.Context) error { return s.err() }
func (s telling) Write(_ context.Context, batches []*Batch) error {
	if len(batches) == 0 {
		return Throttle(s.err(), 7)
	}
	named := &BatchError{}
	named.Fail(0, 0, Permanent(WithDetail(s.err(), s.err().Error())))
	return named
}

func TestErrorsOfASinkShowNoValue(t *testing.T) {
	t.Parallel()
	password, _ := testSecrets.Env("PASSWORD")
	r := Registry{"x": func(u *url.URL) (Sink, error) { return telling{u: u}, nil }}
	s, err := r.NewWithSecrets("x://u:{env:PASSWORD}@h/{env:PASSWORD}?k={env:PASSWORD}&n={env:SHORT}", testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	throttled, named := s.Write(t.Context(), nil), s.Write(t.Context(), []*Batch{{}})
	for _, err := range []error{s.Open(t.Context()), s.Close(t.Context()), throttled, named, named.(*BatchError).Failed[0].Err} {
		for _, part := range []string{strings.TrimSpace(password), "rd?&#", "%23%25", `\"{env`} {
			if strings.Contains(err.Error(), part) {
				t.Errorf("%q is in %q", part, err)
			}
		}
		if !strings.Contains(err.Error(), "x://u:…%0A@h/…%0A?k=…%0A&n=7 …\n /…\n …\n") {
			t.Errorf("got %q", err)
		}
	}
	if got, want := Detail(named.(*BatchError).Failed[0].Err), "x://u:…%0A@h/…%0A?k=…%0A&n=7 …\n /…\n …"; got != want {
		t.Errorf("detail: got %q, want %q", got, want)
	}
	if after, ok := ThrottledFor(throttled); !ok || after != 7 || !IsPermanent(named.(*BatchError).Failed[0].Err) {
		t.Errorf("kinds are lost: %v, %v", throttled, named)
	}
}

func (s telling) WarnTo(log func(string), _ time.Duration) { log(s.err().Error()) }

func TestWarningsOfASinkShowNoValue(t *testing.T) {
	t.Parallel()
	password, _ := testSecrets.Env("PASSWORD")
	r := Registry{"x": func(u *url.URL) (Sink, error) { return telling{u: u}, nil }}
	s, err := r.NewWithSecrets("x://u:{env:PASSWORD}@h/", testSecrets)
	if err != nil {
		t.Fatal(err)
	}
	var warning string
	s.(Warner).WarnTo(func(text string) { warning = text }, time.Second)
	if !strings.Contains(warning, "x://u:…%0A@h/ …") || strings.Contains(warning, strings.TrimSpace(password)) {
		t.Errorf("got %q", warning)
	}
}

// A server may answer with what it was sent, as its own format writes it.
func TestAValueIsFoundInEachSpelling(t *testing.T) {
	t.Parallel()
	const value = "a/b&c<\"d'é😀"
	h := newHider(append([]string{value}, credentials("http://bob:"+url.PathEscape(value)+"@h/")...))
	indented, _ := json.Marshal(value)
	for name, text := range map[string]string{
		"JSON": string(indented), "JSON with slashes": strings.ReplaceAll(string(indented), "/", `\/`),
		"JSON of ASCII alone": `a\/b\u0026c\u003C\u0022d\u0027\u00e9\ud83d\ude00`,
		"HTML":                html.EscapeString(value), "HTML of numbers": "a&#47;b&#38;c&#060;&#34;d&#x27;&#xE9;&#x1F600;", "HTML of names": "a/b&amp;c&lt;&quot;d&apos;é😀",
		"Basic": "Basic " + base64.StdEncoding.EncodeToString([]byte("bob:"+value)),
	} {
		if got := h.in("said " + text); !strings.Contains(got, "…") || strings.Contains(got, "b") || len(got) > len(`said Basic "…="`)+2 {
			t.Errorf("%s: %s became %s", name, text, got)
		}
	}
}

func TestALongValueIsFoundByItsBeginning(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("secret%20+", 1000)
	h := newHider([]string{"sec", long, long[:300], "", "other"})
	for text, want := range map[string]string{
		"a sec and another":           "a sec and an…",
		"at " + long + " and later":   "at …",
		"at " + url.QueryEscape(long): "at …",
		"at " + long[:200]:            "at " + long[:200],
	} {
		if got := h.in(text); got != want {
			t.Errorf("%.100s: got %.100s, want %.100s", text, got, want)
		}
	}
	if got := newHider([]string{"abc"}).in("abc"); got != "abc" {
		t.Errorf("got %s", got)
	}
}

// FuzzPlaceholders puts a placeholder anywhere in a URL: no error and no label shows
// its value.
func FuzzPlaceholders(f *testing.F) {
	for _, form := range []string{
		"https://u:%s@h/in?k=%s#%s", "file:///var/%s/x?%s", "http:%s", "%s://h", "http://%s/", "http://h:%s/", "null:?%s=1&%%zz", "null:%s", "http://u:%s%%zz@h", "{env:%s}", "{file:%s", "file://%s:%s@/x", "//%s",
	} {
		f.Add(form)
	}
	const value = "hunter2/\"p@ss\x01\xffw"
	secrets := Secrets{
		Env:  func(name string) (string, bool) { return value, name == "SECRET" },
		File: func(string) ([]byte, error) { return []byte(value + "\n"), nil },
	}
	r := Registry{}
	for _, scheme := range []string{"null", "file", "http", "https"} {
		r[scheme] = func(u *url.URL) (Sink, error) {
			if _, err := Options(u, "k"); err != nil {
				return nil, err
			}
			return telling{u: u}, nil
		}
	}
	f.Fuzz(func(t *testing.T, form string) {
		for _, placeholder := range []string{"{env:SECRET}", "{file:/run/secret}"} {
			raw := strings.ReplaceAll(form, "%s", placeholder)
			if strings.Contains(form, "hunter2") {
				return
			}
			texts := []string{Redact(raw)}
			s, err := r.NewWithSecrets(raw, secrets)
			if err == nil {
				err = s.Open(t.Context())
			}
			if err != nil {
				texts = append(texts, err.Error())
			}
			for _, text := range texts {
				if strings.Contains(text, "hunter2") {
					t.Fatalf("%q is shown as %q", raw, text)
				}
			}
		}
	})
}
