// Package cron finds the times of a cron expression in a time zone, through every
// change of the zone's clock.
//
// github.com/netresearch/go-cron parses the expressions and searches for their times,
// in UTC alone, where no hour is missing and none comes twice. This package maps those
// wall-clock times to instants, by the rule of Debian's cron:
//
//   - An expression whose minute or hour begins with * follows the clock. It fires in
//     both of an hour that comes twice, and not in one that is missing.
//   - Any other fires once for each of its wall-clock times: at the first instant where
//     the clock shows that time or has passed it. So a time that comes twice counts the
//     first time, and those that a gap leaves out fire together at its end.
//
// A library alone does not do: of those that were compared each is wrong in a fifth of
// the cases around a change, and some loop for ever on a day that a zone left out.
package cron

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
	_ "time/tzdata" // zones are there where the system has none

	parser "github.com/netresearch/go-cron"
)

// MaxBytes bounds an expression: lists of all minutes, hours and days fit.
const MaxBytes = 512

// searchYears is how far ahead the library looks. The 29th of February on a given
// weekday can be 40 years away, because 2100 has none.
const searchYears = 41

// crontab(5) has two rules for the two fields of days: where one of them begins with *
// a day must match both, otherwise one of them is enough. The library knows one rule a
// parser.
const fields = parser.Minute | parser.Hour | parser.Dom | parser.Month | parser.Dow

var (
	bothDays   = parser.MustNewParser(fields).WithMaxSearchYears(searchYears)
	eitherDays = parser.MustNewParser(fields | parser.DowOrDom).WithMaxSearchYears(searchYears)
)

// item is one of a list: *, a number or name, or a range, each with a step. The library
// takes empty ones, and reads ? as *.
var item = regexp.MustCompile(`^(\*|[0-9A-Za-z]+(-[0-9A-Za-z]+)?)(/[0-9]+)?$`)

var macros = map[string]string{
	"@hourly": "0 * * * *", "@daily": "0 0 * * *", "@midnight": "0 0 * * *", "@weekly": "0 0 * * 0",
	"@monthly": "0 0 1 * *", "@yearly": "0 0 1 1 *", "@annually": "0 0 1 1 *",
}

// ErrNever is of an expression without any time, such as the 30th of February.
var ErrNever = errors.New("the expression has no time: that day does not exist")

// An Expression says when, to the minute. Its methods may be called at once.
type Expression struct {
	search  parser.Schedule // in UTC, of wall-clock times
	zone    *time.Location
	follows bool // the clock, through hours that are missing or come twice
}

// Parse reads five fields (minute, hour, day of month, month, day of week), or one of
// @hourly, @daily, @weekly, @monthly and @yearly. Names of months and days are those of
// English, three letters; a range may go over the end (22-6); Sunday is 0 or 7. Its
// errors say what to write instead.
func Parse(text string, zone *time.Location) (*Expression, error) {
	if len(text) > MaxBytes {
		return nil, fmt.Errorf("the expression has %d bytes; write %d at most", len(text), MaxBytes)
	}
	if meant, ok := macros[text]; ok {
		text = meant
	}
	if strings.HasPrefix(text, "@") {
		return nil, errors.New("write five fields, or @hourly, @daily, @weekly, @monthly or @yearly; for intervals take every")
	}
	parts := strings.Fields(text)
	if len(parts) != 5 {
		return nil, fmt.Errorf("the expression has %d fields; write five: minute, hour, day of month, month, day of week", len(parts))
	}
	for _, part := range parts {
		for one := range strings.SplitSeq(part, ",") {
			if !item.MatchString(one) {
				return nil, fmt.Errorf("%.40q is neither *, nor a number, a name or a range, with /step after it if you like", one)
			}
		}
	}
	kind := eitherDays
	if parts[2][0] == '*' || parts[4][0] == '*' {
		kind = bothDays
	}
	search, err := kind.Parse(strings.Join(parts, " "))
	if err != nil {
		return nil, fmt.Errorf("read the expression: %w", err)
	}
	if search.Next(time.Unix(0, 0).UTC()).IsZero() {
		return nil, ErrNever
	}
	return &Expression{search: search, zone: zone, follows: parts[0][0] == '*' || parts[1][0] == '*'}, nil
}

// zoneName is an IANA name. What is below posix/ and right/ are other readings of the
// same zones, and localtime and posixrules are whatever the machine has: processes on
// two machines would differ.
var zoneName = regexp.MustCompile(`^[A-Z][A-Za-z0-9_+-]*(/[A-Z][A-Za-z0-9_+-]*){0,2}$`)

// Zone is the time zone of an IANA name, such as Europe/Berlin or UTC.
func Zone(name string) (*time.Location, error) {
	if len(name) > 64 || !zoneName.MatchString(name) || name == "Local" {
		return nil, fmt.Errorf("%.40q is no time zone; write an IANA name, such as Europe/Berlin or UTC", name)
	}
	zone, err := time.LoadLocation(name)
	if err != nil {
		return nil, fmt.Errorf("%q is no time zone that this program knows; write an IANA name, such as Europe/Berlin or UTC", name)
	}
	return zone, nil
}

// Next is the first time after an instant, in the expression's zone. It is zero where
// there is none within 41 years.
func (e *Expression) Next(after time.Time) time.Time {
	after = after.In(e.zone)
	if e.follows {
		return e.follow(after)
	}
	// What the clock has shown once does not count again.
	shown := wall(after)
	if start, _ := after.ZoneBounds(); !start.IsZero() {
		if before := wall(start.Add(-time.Second)); before.After(shown) {
			shown = before
		}
	}
	for {
		if shown = e.search.Next(shown); shown.IsZero() {
			return shown
		}
		if at := reached(shown, e.zone); at.After(after) {
			return at
		}
	}
}

// follow looks through the spans in which the zone keeps its offset, one after the other.
func (e *Expression) follow(after time.Time) time.Time {
	_, offset := after.Zone()
	end := spanEnd(after)
	for {
		shown := e.search.Next(after.UTC().Add(time.Duration(offset) * time.Second))
		if shown.IsZero() {
			return shown
		}
		if at := shown.Add(-time.Duration(offset) * time.Second); end.IsZero() || at.Before(end) {
			return at.In(e.zone)
		}
		_, offset = end.Zone()
		after = end.Add(-time.Second) // the span's first instant may be one of the times
		end = spanEnd(end)
	}
}

// spanEnd is when a zone changes its offset next, or sooner. It is zero where it never
// does. Beyond the zone's table, from 2038 on, ZoneBounds takes each year for one of 365
// days: on the last day of a leap year its end is over (go1.26). No zone's rule changes
// the clock there.
func spanEnd(t time.Time) time.Time {
	_, end := t.ZoneBounds()
	if !end.IsZero() && !end.After(t) {
		return t.Add(24 * time.Hour)
	}
	return end
}

// wall is what the clock of t's zone shows, as a time of UTC.
func wall(t time.Time) time.Time {
	_, offset := t.Zone()
	return t.Add(time.Duration(offset) * time.Second).UTC()
}

// reached is the first instant at which a zone's clock shows a time or has passed it.
func reached(shown time.Time, zone *time.Location) time.Time {
	// No zone is further than 26 hours from another, with a change of the clock.
	at := shown.Add(-26 * time.Hour).In(zone)
	for {
		end := spanEnd(at)
		if missing := shown.Sub(wall(at)); missing <= 0 {
			return at
		} else if at = at.Add(missing); end.IsZero() || at.Before(end) {
			return at
		}
		at = end
	}
}
