package jobs

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
)

// query is the parameters of a request. A wrong one is rejected with a code that names it.
type query struct{ args map[string]string }

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
				"the parameters of this route are "+strings.Join(known, ", ")+", each at most once")
		}
		q.args[name] = string(value)
	}
	return nil
}

// attribute begins the parameters that give a job an attribute each.
const attribute = "attribute."

// duration reads a Go duration, rounded up to milliseconds: a ttl of 100µs would else be 0,
// which is for ever.
func (q *query) duration(name string, otherwise, from,
	to time.Duration) (time.Duration, *ingest.Rejection) {
	text, given := q.args[name]
	if !given {
		return otherwise, nil
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < from || d > to {
		return 0, badParameter(name, "a duration such as 500ms, 5s or 1h30m, from "+from.String()+" to "+to.String())
	}
	return (d + time.Millisecond - 1).Truncate(time.Millisecond), nil
}

// number reads a decimal number.
func (q *query) number(name string, otherwise, from, to int) (int, *ingest.Rejection) {
	text, given := q.args[name]
	if !given {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < from || n > to || text[0] == '+' {
		return 0, badParameter(name, "a number from "+strconv.Itoa(from)+" to "+strconv.Itoa(to))
	}
	return n, nil
}

// choice reads one of some words. It has to be given.
func (q *query) choice(name string, words ...string) (string, *ingest.Rejection) {
	if word := q.args[name]; slices.Contains(words, word) {
		return word, nil
	}
	return "", badParameter(name, strings.Join(words, " or "))
}

// badParameter rejects with bad_NAME.
func badParameter(name, want string) *ingest.Rejection {
	return ingest.Reject(wire.Code("bad_"+name), name+" is "+want)
}
