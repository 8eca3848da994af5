package backend

import (
	"maps"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"
)

// optionName is what an error may show of a query: part of a password that was not
// escaped can look like an option.
var optionName = regexp.MustCompile(`^[a-z_]{1,32}$`)

// parseSingleHost reads the URL of one server. go-redis accepts about twenty options in
// it, of which the store uses two. The others are an error, so that nobody relies on a
// timeout that has no effect.
func parseSingleHost(raw string) (*redis.Options, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Fragment != "" {
		return nil, badURL()
	}
	known := []string{"db"}
	if u.Scheme == "rediss" {
		known = append(known, "skip_verify")
	}
	if err := checkOptions(u.Scheme, u.RawQuery, known...); err != nil {
		return nil, err
	}
	if u.Scheme != "unix" && u.Query().Has("db") && strings.Trim(u.Path, "/") != "" {
		return nil, &FieldError{"redis", `option "db"`, "the database once, as in " + u.Scheme + "://host:6379/2"}
	}
	o, err := redis.ParseURL(raw)
	if err != nil || o.DB < 0 { // go-redis reads a negative database as 0
		return nil, badURL()
	}
	return o, nil
}

// checkOptions rejects a query that holds anything but known options, each once.
func checkOptions(scheme, query string, known ...string) error {
	if strings.Contains(query, "@") {
		return badURL() // a user or password with a ?, which has to be written %3F
	}
	options, err := url.ParseQuery(query)
	if err != nil {
		return badURL()
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		shown := "an option"
		if optionName.MatchString(name) {
			shown = "option " + strconv.Quote(name)
		}
		switch {
		case name == "db" && scheme == "redis-sentinel":
			return &FieldError{"redis", shown, "no option: the database comes after the master, as in redis-sentinel://h1,h2/master/3"}
		case !slices.Contains(known, name):
			want := "no option"
			if len(known) > 0 {
				want += " but " + strings.Join(known, " and ")
			}
			return &FieldError{"redis", shown, want + ": time-outs, pools and retries are Spillway's own"}
		case len(options[name]) > 1:
			return &FieldError{"redis", shown, "it once"}
		}
	}
	return nil
}
