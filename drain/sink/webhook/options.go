package webhook

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/spillway-io/spillway/drain/sink"
)

// options are those of the URL's query that are ours. None of them is sent in it.
type options struct {
	gzip    bool
	keys    [][]byte    // of the signatures
	headers http.Header // in canonical form
}

const headerOption = "header."

// takeOptions removes our options from a query and leaves the rest byte for byte:
// order and escapes of the target's parameters may be signed. Its errors show no value.
func takeOptions(query string) (rest string, o options, err error) {
	var kept, seen []string
	o.headers = http.Header{}
	for part := range strings.SplitSeq(query, "&") {
		name, value, _ := strings.Cut(part, "=")
		if name != "gzip" && name != "signing_secret" && !strings.HasPrefix(name, headerOption) {
			if text, err := url.PathUnescape(value); err == nil && strings.Contains(text, secretPrefix) {
				return "", o, errors.New("a parameter for the receiver holds a whsec_ secret: the option of the sink is signing_secret")
			}
			if err := misspelt(name); err != nil {
				return "", o, err
			}
			kept = append(kept, part)
			continue
		}
		if slices.Contains(seen, name) {
			return "", o, fmt.Errorf("option %q is given twice", name)
		}
		seen = append(seen, name)
		switch name {
		case "gzip":
			if o.gzip, err = strconv.ParseBool(value); err != nil {
				return "", o, errors.New("gzip is neither 0 nor 1")
			}
		case "signing_secret":
			// Not QueryUnescape: a + that is not escaped is one of base64.
			if value, err = url.PathUnescape(value); err == nil {
				o.keys, err = parseSecrets(value)
			} else {
				err = errors.New("invalid URL escape")
			}
			if err != nil {
				return "", o, fmt.Errorf("signing_secret: %w", err)
			}
		default:
			if err := o.addHeader(strings.TrimPrefix(name, headerOption), value); err != nil {
				return "", o, fmt.Errorf("option %q: %w", name, err)
			}
		}
	}
	return strings.Join(kept, "&"), o, nil
}

// looksLikeHeader matches header-X-Team, headers.X-Team and Header.X-Team, not headerless.
var looksLikeHeader = regexp.MustCompile(`^(?i:headers?)[.:_-].`)

// misspelt rejects parameters that are one of our options but for a few letters: the
// receiver would get it, and nothing would be compressed or signed.
func misspelt(name string) error {
	near := sink.Nearest(name, []string{"gzip", "signing_secret"})
	if prefix, _, dotted := strings.Cut(name, "."); looksLikeHeader.MatchString(name) || dotted &&
		sink.Nearest(prefix, []string{"header"}) != "" {
		near = "header.NAME"
	}
	if near == "" {
		return nil
	}
	// What follows the letters may be a secret that stands in the wrong place.
	if end := strings.IndexFunc(name, func(r rune) bool {
		return r != '.' && r != '-' && r != '_' &&
			!unicode.IsLetter(r)
	}); end >= 0 {
		name = name[:end]
	}
	return fmt.Errorf(
		"unknown option %q: did you mean %s? For a parameter of the receiver, escape its first letter: %%%X",
		name,
		near,
		name[0],
	)
}

// ourHeaders are set by this sink or by the connection.
var ourHeaders = []string{
	"Accept-Encoding", "Connection", "Content-Encoding", "Content-Length", "Content-Type", "Expect", "Host", "Idempotency-Key", "Keep-Alive",
	"Proxy-Authorization", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade", "User-Agent",
	"Webhook-Id", "Webhook-Signature", "Webhook-Timestamp", "X-Attempt", "X-First-Seq", "X-Namespace", "X-Partition",
	"X-Spillway-Attempt", "X-Spillway-Job-Id", "X-Spillway-Queue", "X-Spillway-Schedule", "X-Spillway-Shard-Index", "X-Spillway-Shard-Total",
	"X-Spillway-Tick",
}

func (o *options) addHeader(name, value string) error {
	const nameChars = "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ" // RFC 9110, section 5.6.2
	name, err := url.PathUnescape(name)
	if err != nil || name == "" || strings.Trim(name, nameChars) != "" {
		return errors.New("not the name of a header: write header.X-Team=kart")
	}
	name = http.CanonicalHeaderKey(name)
	if slices.Contains(ourHeaders, name) {
		return fmt.Errorf("the sink sets %s itself", name)
	}
	if _, twice := o.headers[name]; twice {
		return fmt.Errorf("%s is given twice", name)
	}
	if value, err = url.QueryUnescape(value); err != nil {
		return errors.New("invalid URL escape")
	}
	if strings.ContainsFunc(value, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
		return errors.New("a header's value has no line breaks or other control characters")
	}
	o.headers[name] = []string{value}
	return nil
}
