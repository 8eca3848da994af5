package sink

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf16"
	"unicode/utf8"
)

// minHidden is the length from which a value is searched for in errors, in bytes.
// A shorter one is part of too many words.
const minHidden = 4

// hider replaces values in the texts of errors.
type hider struct{ values *regexp.Regexp } // nil: nothing to hide

// maxMatched is how much of a value is searched for, in bytes. Where a longer one
// begins, the rest of the text is replaced.
const maxMatched = 256

func newHider(values []string) hider {
	var patterns []string
	for _, v := range values {
		// Details are trimmed; the white space around a value is no secret.
		if v = strings.TrimSpace(v); len(v) >= minHidden {
			patterns = append(patterns, valuePattern(v))
		}
	}
	if len(patterns) == 0 {
		return hider{}
	}
	// The longest first, for a value can be the beginning of another.
	slices.SortFunc(patterns, func(a, b string) int { return len(b) - len(a) })
	return hider{regexp.MustCompile("(?s)" + strings.Join(patterns, "|"))}
}

// valuePattern matches a value where each character is as it is, percent-encoded,
// which depends on the place in a URL, quoted as by %q, or escaped as in JSON or HTML.
func valuePattern(value string) string {
	var p strings.Builder
	for i, r := range value {
		if i >= maxMatched {
			p.WriteString(".*")
			break
		}
		_, size := utf8.DecodeRuneInString(value[i:])
		raw := value[i : i+size]
		quoted := strconv.Quote(raw)
		fmt.Fprintf(&p, "(?:(?i:%s)|%s|(?i:%s|&#0*%d;|&#x0*%x;)|", percentEncoded(raw), regexp.QuoteMeta(quoted[1:len(quoted)-1]),
			inUTF16(r), r, r)
		if name := entities[r]; name != "" {
			p.WriteString("&" + name + ";|")
		}
		switch {
		case r == utf8.RuneError && size == 1:
			p.WriteString(`\x{FFFD}?)`) // several may have become one
		case r == ' ':
			p.WriteString(`[ +])`)
		case r == '/':
			p.WriteString(`\\?/)`)
		default:
			p.WriteString(regexp.QuoteMeta(raw) + ")")
		}
	}
	return p.String()
}

// entities are characters of which HTML has names that are in use.
var entities = map[rune]string{'&': "amp", '<': "lt", '>': "gt", '"': "quot", '\'': "apos"}

// inUTF16 is a character as JSON may escape it.
func inUTF16(r rune) (text string) {
	for _, unit := range utf16.Encode([]rune{r}) {
		text += fmt.Sprintf(`\\u%04x`, unit)
	}
	return text
}

// credentials are user and password of a URL as Basic authentication sends them.
func credentials(rawURL string) (forms []string) {
	u, err := url.Parse(rawURL)
	if err != nil || u.User == nil {
		return nil
	}
	password, _ := u.User.Password()
	both := []byte(u.User.Username() + ":" + password)
	return []string{base64.RawStdEncoding.EncodeToString(both), base64.RawURLEncoding.EncodeToString(both)}
}

func percentEncoded(raw string) string {
	var all []byte
	for _, b := range []byte(raw) {
		all = fmt.Appendf(all, "%%%02x", b)
	}
	return string(all)
}

func (h hider) in(text string) string {
	if h.values == nil {
		return text
	}
	return h.values.ReplaceAllLiteralString(text, "…")
}

// from is err without the values, and of the same kind.
func (h hider) from(err error) error {
	if err == nil {
		return nil
	}
	var named *BatchError
	if errors.As(err, &named) {
		for i := range named.Failed {
			named.Failed[i].Err = h.from(named.Failed[i].Err)
		}
	}
	if detail := heldDetail(err); detail != "" {
		err = WithDetail(err, h.in(detail)) // the outer one counts
	}
	if text := h.in(err.Error()); text != err.Error() {
		err = &hiddenError{err, text}
	}
	return err
}

type hiddenError struct {
	err  error
	text string
}

func (e *hiddenError) Error() string { return e.text }
func (e *hiddenError) Unwrap() error { return e.err }

// hidingSink is a sink whose errors show no value of a placeholder.
type hidingSink struct {
	Sink
	hide hider
}

func (s *hidingSink) Open(ctx context.Context) error { return s.hide.from(s.Sink.Open(ctx)) }

func (s *hidingSink) Write(ctx context.Context, batches []*Batch) error {
	return s.hide.from(s.Sink.Write(ctx, batches))
}

// Check implements Checker, for sinks that do.
func (s *hidingSink) Check() error {
	if c, ok := s.Sink.(Checker); ok {
		return s.hide.from(c.Check())
	}
	return nil
}

// WarnTo implements Warner, for sinks that do.
func (s *hidingSink) WarnTo(log func(text string), maxAge time.Duration) {
	if w, ok := s.Sink.(Warner); ok {
		w.WarnTo(func(text string) { log(s.hide.in(text)) }, maxAge)
	}
}

func (s *hidingSink) Close(ctx context.Context) error { return s.hide.from(s.Sink.Close(ctx)) }
