package sink

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"net/url"
	"path"
	"regexp"
	"strings"
)

// Secrets finds the values of the placeholders in sink URLs, which keep secrets
// out of files and command lines:
//
//	{env:NAME}    the environment's variable NAME
//	{file:/path}  the contents of that file, without one line break at the end
//
// A value is inserted percent-encoded, so it may hold any byte. It can stand in the
// user, password, path, and options of a URL, not in its host, which logs show.
type Secrets struct {
	Env  func(name string) (value string, ok bool)
	File func(path string) ([]byte, error) // bounds what it reads; its errors name no contents
}

var (
	placeholder  = regexp.MustCompile(`\{(env|file):([^{}]*)\}`)
	variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)
)

// maskPlaceholders puts "…" in the place of each placeholder, so that the URL can
// be parsed.
func maskPlaceholders(rawURL string) string {
	return placeholder.ReplaceAllLiteralString(rawURL, url.PathEscape("…"))
}

// NewWithSecrets is New for a URL that may have placeholders. Neither its errors nor
// those of the sink show a value of 4 bytes or more.
func (r Registry) NewWithSecrets(rawURL string, secrets Secrets) (Sink, error) {
	filled, values, err := secrets.fill(rawURL)
	if err != nil {
		return nil, fmt.Errorf("sink %s: %w", Redact(rawURL), err)
	}
	if len(values) == 0 {
		return r.New(rawURL)
	}
	hide := newHider(append(values, credentials(filled)...))
	s, err := r.New(filled)
	if err != nil {
		return nil, hide.from(err)
	}
	return &hidingSink{s, hide}, nil
}

// Sum is a digest of text with the values in place of its placeholders. Those that cannot
// be read count as empty.
func (s Secrets) Sum(text string) [sha256.Size]byte {
	return sha256.Sum256([]byte(placeholder.ReplaceAllStringFunc(text, func(text string) string {
		parts := placeholder.FindStringSubmatch(text)
		value, _ := s.value(parts[1], parts[2])
		return escapeAll(value)
	})))
}

// Fill returns text with the values, percent-encoded, in the place of its placeholders. Its
// errors show no value.
func (s Secrets) Fill(text string) (string, error) {
	masked := maskPlaceholders(text)
	if strings.Contains(masked, "{env:") || strings.Contains(masked, "{file:") {
		return "", errNoEnd
	}
	filled, _, err := s.replace(text)
	return filled, err
}

// fill returns the URL with the values in place of the placeholders, and the values.
func (s Secrets) fill(rawURL string) (filled string, values []string, err error) {
	masked := maskPlaceholders(rawURL)
	if strings.Contains(masked, "{env:") || strings.Contains(masked, "{file:") {
		return "", nil, errNoEnd
	}
	const places = "it can be in the user, password, path and options"
	if u, err := url.Parse(masked); masked == rawURL {
		return rawURL, nil, nil
	} else if err != nil {
		return "", nil, fmt.Errorf("URL with a placeholder is malformed: %s; %s", parseFault(err), places)
	} else if strings.Contains(u.Host, "…") {
		return "", nil, errors.New("a placeholder is in the host, which logs show: " + places)
	}
	return s.replace(rawURL)
}

var errNoEnd = errors.New("a placeholder has no end: write {env:NAME} or {file:/path}")

func (s Secrets) replace(text string) (filled string, values []string, err error) {
	var errs []error
	filled = placeholder.ReplaceAllStringFunc(text, func(text string) string {
		parts := placeholder.FindStringSubmatch(text)
		value, err := s.value(parts[1], parts[2])
		if err != nil {
			errs = append(errs, err)
			return ""
		}
		values = append(values, value)
		return escapeAll(value)
	})
	return filled, values, errors.Join(errs...)
}

func (s Secrets) value(kind, name string) (string, error) {
	if kind == "env" {
		if !variableName.MatchString(name) {
			return "", errors.New("a placeholder names no variable: write {env:NAME}, with letters, digits and underscores")
		}
		value, ok := s.Env(name)
		switch {
		case !ok:
			return "", fmt.Errorf("{env:%s}: the environment has no variable %s", name, name)
		case value == "":
			return "", fmt.Errorf("{env:%s}: the variable %s is empty", name, name)
		}
		return value, nil
	}
	if !path.IsAbs(name) {
		return "", fmt.Errorf("{file:%s}: the path is relative: write it from the root", name)
	}
	raw, err := s.File(name)
	if err != nil {
		return "", fmt.Errorf("{file:%s}: %w", name, err)
	}
	value, ended := strings.CutSuffix(string(raw), "\n")
	if ended {
		value = strings.TrimSuffix(value, "\r")
	}
	if value == "" {
		return "", fmt.Errorf("{file:%s}: the file is empty", name)
	}
	return value, nil
}

// escapeAll percent-encodes every byte that has a meaning anywhere in a URL.
func escapeAll(value string) string {
	return strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}
