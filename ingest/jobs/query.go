package jobs

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
)

// query is the parameters of a request. A wrong one is rejected with a code that names it. The first
// that is wrong is kept, so that a route reads all that it has, and then looks once.
type query struct {
	args  map[string]string
	wrong *ingest.Rejection
	late  *ingest.Rejection // of a publish: by the clock or by a rule, so that it may have been taken before
}

func (q *query) reject(rejected *ingest.Rejection) { q.wrong = cmp.Or(q.wrong, rejected) }

// fail rejects with a code.
func (q *query) fail(code wire.Code, text string) { q.reject(ingest.Reject(code, text)) }

// bad rejects with bad_NAME.
func (q *query) bad(name, want string) {
	q.fail(wire.Code("bad_"+name), name+" is "+want)
}

// parse takes only the parameters of the route, each once: a mistyped parameter would else
// silently have its default, and of two values a proxy in front may have read the other.
func (q *query) parse(args *fasthttp.Args, known []string) *ingest.Rejection {
	if args.Len() == 0 {
		return nil
	}
	q.args = make(map[string]string, args.Len())
	for key, value := range args.All() {
		name := string(key)
		_, twice := q.args[name]
		own := strings.HasPrefix(name, attribute) && slices.Contains(known, attribute)
		if twice || !own && !slices.Contains(known, name) {
			if len(known) == 0 {
				return ingest.Reject(wire.CodeBadParameter, "this route has no parameters")
			}
			return ingest.Reject(wire.CodeBadParameter,
				fmt.Sprintf("%.64q: the parameters of this route are %s, each at most once", name, strings.Join(known, ", ")))
		}
		q.args[name] = string(value)
	}
	return nil
}

// attribute begins the parameters that give a job an attribute each.
const attribute = "attribute."

// duration reads a Go duration, rounded up to milliseconds: a ttl of 100µs would else be 0,
// which is for ever.
func (q *query) duration(name string, otherwise, from, to time.Duration) time.Duration {
	text, given := q.args[name]
	if !given {
		return otherwise
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < from || d > to {
		q.bad(name, "a duration such as 500ms, 5s or 1h30m, from "+from.String()+" to "+to.String())
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond)
}

// number reads a decimal number.
func (q *query) number(name string, otherwise, from, to int) int {
	text, given := q.args[name]
	if !given {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < from || n > to || text[0] == '+' {
		q.bad(name, "a number from "+strconv.Itoa(from)+" to "+strconv.Itoa(to))
	}
	return n
}

// flag reads 1 or 0; otherwise 0.
func (q *query) flag(name string, code wire.Code) bool {
	text, given := q.args[name]
	if given && text != "1" && text != "0" {
		q.fail(code, name+" is 1 or 0")
	}
	return text == "1"
}

// choice reads one of some words. It has to be given.
func (q *query) choice(name string, words ...string) string {
	word := q.args[name]
	if !slices.Contains(words, word) {
		q.bad(name, strings.Join(words, " or "))
	}
	return word
}

// text reports whether payloads that are text are shown as text.
func (q *query) text() bool {
	value, given := q.args["text"]
	if given && value != "" && value != "1" {
		q.fail(wire.CodeBadParameter, "text is 1, or left out")
	}
	return given
}

// moment reads a time.
func (q *query) moment(name string, otherwise time.Time) time.Time {
	text, given := q.args[name]
	if !given {
		return otherwise
	}
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.Year() < 1970 || t.Year() >= 2200 {
		q.bad(name, "a time of RFC 3339 from 1970 to 2199, such as 2026-12-01T02:30:00Z")
	}
	return t
}

const maxAttributes = 16

// attributes reads those of a publish, as a JSON object; nil: there are none. A job that comes from another queue has also
// those that the service set there.
func (q *query) attributes() ([]byte, *ingest.Rejection) {
	all, own, moved := map[string]string{}, 0, q.flag("moved", wire.CodeBadParameter)
	if q.wrong != nil {
		return nil, q.wrong
	}
	for name, value := range q.args {
		name, is := strings.CutPrefix(name, attribute)
		switch {
		case !is:
			continue
		case !partition.ValidAttribute(name):
			return nil, ingest.Reject(wire.CodeBadParameter, "the name of an attribute is 1 to 128 letters, digits, '.', '_' or '-'")
		case partition.ReservedAttribute(name) && !moved:
			return nil, ingest.Reject(wire.CodeBadParameter, attribute+name+": the service sets this one itself, take another name")
		case !utf8.ValidString(value):
			return nil, ingest.Reject(wire.CodeBadParameter, attribute+name+" is not UTF-8")
		}
		all[name] = value
		if !partition.ReservedAttribute(name) {
			own++
		}
	}
	switch {
	case len(all) == 0:
		return nil, nil
	case own > maxAttributes:
		return nil, ingest.Reject(wire.CodeBadParameter, "a job has at most 16 attributes")
	}
	text, _ := json.Marshal(all) // strings
	return text, nil
}
