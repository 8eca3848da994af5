package cron

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// The changes of clocks, each with the days around it.
var changes = []struct{ zone, from, what string }{
	{"America/New_York", "2026-03-07", "an hour is missing"},
	{"America/New_York", "2026-10-31", "an hour comes twice"},
	{"Europe/Berlin", "2026-03-28", "at 2:00"},
	{"Europe/Berlin", "2026-10-24", "at 3:00"},
	{"Europe/Dublin", "2026-03-28", "summer is the standard time"},
	{"Australia/Lord_Howe", "2026-04-04", "half an hour"},
	{"Australia/Lord_Howe", "2026-10-03", "half an hour"},
	{"America/Sao_Paulo", "2018-11-03", "midnight is missing"},
	{"America/Sao_Paulo", "2018-02-16", "the last hour of a day comes twice"},
	{"Asia/Beirut", "2026-03-28", "midnight is missing"},
	{"America/Havana", "2026-10-31", "midnight comes twice"},
	{"Africa/Cairo", "2026-04-23", "midnight is missing"},
	{"America/St_Johns", "2006-04-01", "one minute past midnight"},
	{"America/St_Johns", "2006-10-28", "one minute past midnight"},
	{"Pacific/Apia", "2011-12-28", "a day is missing"},
	{"Pacific/Kwajalein", "1993-08-19", "a day is missing"},
	{"Antarctica/Troll", "2026-03-28", "two hours"},
	{"Antarctica/Troll", "2026-10-24", "two hours"},
	{"Africa/Casablanca", "2026-02-14", "Ramadan begins"},
	{"Africa/Casablanca", "2026-03-21", "Ramadan ends"},
	{"America/Nuuk", "2024-03-30", "before midnight"},
	{"Asia/Kathmandu", "2026-03-01", "no change, 45 minutes"},
	{"UTC", "2028-02-27", "a leap day"},
	{"Europe/Berlin", "2040-12-30", "the end of a leap year, beyond the zone's table"},
	{"America/New_York", "2048-10-31", "by the zone's rule"},
	{"Antarctica/Troll", "2044-03-26", "by the zone's rule, two hours"},
}

var expressions = []string{
	"30 2 * * *", "0 0 * * *", "30 1 * * *", "0 2 * * *", "15 * * * *", "*/20 * * * *", "0 */2 * * *", "*/30 2 * * *",
	"30 0 * * *", "0 3 * * 0", "0,30 1-3 * * *", "59 23 * * *", "*/7 * * * sat,SUN", "5-59/9 22-2 * * *", "0 1 28-31 * 1",
}

// matcher says whether a wall-clock minute is one of the expression, in another way
// than the library: it looks at each item of each field.
func matcher(text string) func(time.Time) bool {
	f := strings.Fields(strings.ToLower(text))
	number := func(s string) int {
		if n, err := strconv.Atoi(s); err == nil {
			return n
		}
		return slices.Index([]string{"sun", "mon", "tue", "wed", "thu", "fri", "sat"}, s)
	}
	field := func(i, low, high int, v ...int) bool {
		for one := range strings.SplitSeq(f[i], ",") {
			span, by, stepped := strings.Cut(one, "/")
			step := 1
			if stepped {
				step = number(by)
			}
			a, b, ranged := strings.Cut(span, "-")
			first, last := low, high
			if a != "*" {
				first = number(a)
				last = first
				if ranged {
					last = number(b)
				} else if stepped {
					last = high
				}
			}
			if last < first {
				last += high - low + 1
			}
			for n := first; n <= last; n += step {
				wrapped := n
				if n > high {
					wrapped = n - (high - low + 1)
				}
				if slices.Contains(v, wrapped) {
					return true
				}
			}
		}
		return false
	}
	return func(w time.Time) bool {
		weekday := int(w.Weekday())
		days := []int{weekday}
		if weekday == 0 {
			days = append(days, 7)
		}
		dom, dow := field(2, 1, 31, w.Day()), field(4, 0, 6, days...)
		day := dom || dow
		if f[2][0] == '*' || f[4][0] == '*' {
			day = dom && dow
		}
		return day && field(0, 0, 59, w.Minute()) && field(1, 0, 23, w.Hour()) && field(3, 1, 12, int(w.Month()))
	}
}

// oracle says the rule minute by minute.
func oracle(text string, from, to time.Time) (times []string) {
	f, is := strings.Fields(text), matcher(text)
	follows := f[0][0] == '*' || f[1][0] == '*'
	highest := wall(from.Add(-time.Minute)) // that the clock has shown
	for t := from; t.Before(to); t = t.Add(time.Minute) {
		fires := follows && is(wall(t))
		for ; highest.Before(wall(t)); highest = highest.Add(time.Minute) {
			fires = fires || !follows && is(highest.Add(time.Minute))
		}
		if fires {
			times = append(times, t.Format("02T15:04-0700"))
		}
	}
	return times
}

func TestNextFollowsTheRuleThroughEveryChangeOfTheClock(t *testing.T) {
	t.Parallel()
	for _, change := range changes {
		zone, err := Zone(change.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.ParseInLocation(time.DateOnly, change.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		to := from.Add(96 * time.Hour)
		for _, text := range expressions {
			e, err := Parse(text, zone)
			if err != nil {
				t.Fatal(text, err)
			}
			want := oracle(text, from, to)
			var got []string
			for at := e.Next(from.Add(-time.Second)); at.Before(to) && len(got) <= len(want); at = e.Next(at) {
				got = append(got, at.Format("02T15:04-0700"))
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s %s (%s), %s: got %v, want %v", change.zone, change.from, change.what, text, got, want)
			}
		}
	}
}

// The next time is the same from wherever one asks, so that two processes that ask at
// different times name the same tick.
func TestNextIsTheSameFromEveryInstantBefore(t *testing.T) {
	t.Parallel()
	for _, change := range changes {
		zone, err := Zone(change.zone)
		if err != nil {
			t.Fatal(err)
		}
		from, err := time.ParseInLocation(time.DateOnly, change.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		for _, text := range expressions {
			e, err := Parse(text, zone)
			if err != nil {
				t.Fatal(text, err)
			}
			next := e.Next(from)
			for at := from; at.Before(from.Add(72 * time.Hour)); at = at.Add(17*time.Minute + 13*time.Second + time.Millisecond) {
				for !next.After(at) {
					next = e.Next(next)
				}
				if got := e.Next(at); !got.Equal(next) {
					t.Fatalf("%s, %s: after %s got %s, want %s", change.zone, text, at, got, next)
				}
			}
		}
	}
}

func TestLeapDaysAreFoundOverTheYearWithoutOne(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"0 12 29 2 *": "2092 2096 2104 2108", "0 12 29 2 */7": "2032 2060 2088 2128"} {
		e, err := Parse(text, time.UTC)
		if err != nil {
			t.Fatal(err)
		}
		years := []string{}
		for at := e.Next(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)); at.Year() < 2141; at = e.Next(at) {
			years = append(years, strconv.Itoa(at.Year()))
		}
		if got := strings.Join(years, " "); !strings.Contains(got, want) {
			t.Errorf("%s: got the years %s, want %s among them", text, got, want)
		}
	}
}

func TestDaysMatchByTheRuleOfCrontab(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"0 0 13 * 5":      "06 13 20 27", // either
		"0 0 1-31 * 1":    "02 03 04 05",
		"0 0 */10 * 5":    "11 01 21 11", // both: one begins with *
		"0 0 * * 5-7":     "06 07 08 13",
		"0 0 * * 7":       "08 15 22 29",
		"0 22-6/4 * * *":  "01 01 01 02",
		"0 0 * nov,DEC *": "02 03 04 05",
	} {
		e, err := Parse(text, time.UTC)
		if err != nil {
			t.Fatal(text, err)
		}
		var days []string
		is := matcher(strings.NewReplacer("nov,DEC", "11,12").Replace(text))
		for at := e.Next(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)); len(days) < 4; at = e.Next(at) {
			days = append(days, at.Format("02"))
			if !is(at) {
				t.Errorf("%s: %s is none of its times", text, at)
			}
		}
		if got := strings.Join(days, " "); got != want {
			t.Errorf("%s: days %s, want %s", text, got, want)
		}
	}
}

func TestExpressionsThatMakeNoSenseAreRejected(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"", " ", "* * * *", "* * * * * *", "60 * * * *", "* 24 * * *", "0 0 0 * *", "0 0 32 * *", "* * * 13 *", "* * * * 8",
		"TZ=UTC * * * * *", "CRON_TZ=UTC 0 0 * * *", "@reboot", "@every 1s", "@fortnightly", "a b c d e", "*/0 * * * *", "1,,2 * * * *",
		", * * * *", "1, * * * *", "? * * * *", "H * * * *", "0 0 L * *", "0 0 * * 5#3", "0 0 15W * *", "-1 * * * *", "1-2-3 * * * *",
		"1/2/3 * * * *", "* * * * *\x00", "１ * * * *", "0 0 * * mondays", "999999999999999999999 * * * *",
		strings.Repeat(",", 10_000), strings.Repeat("1,", 300) + "1 * * * *",
	} {
		if _, err := Parse(text, time.UTC); err == nil {
			t.Errorf("%.60q is taken", text)
		}
	}
	for _, text := range []string{"0 0 30 2 *", "0 0 31 4,6,9,11 *"} {
		if _, err := Parse(text, time.UTC); !errors.Is(err, ErrNever) {
			t.Errorf("%s: got %v, want ErrNever", text, err)
		}
	}
}

func TestZonesThatProcessesCouldReadDifferentlyAreRejected(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", "Local", "localtime", "posixrules", "posix/Europe/Berlin", "right/Europe/Berlin", "../../etc/passwd",
		"/etc/localtime", "Mars/Olympus", "Europe/Berlin\x00", "Europe\\Berlin", "europe/berlin", strings.Repeat("A", 65)} {
		if zone, err := Zone(name); err == nil {
			t.Errorf("%q is taken as %s", name, zone)
		}
	}
	for _, name := range []string{"UTC", "Europe/Berlin", "America/Argentina/Buenos_Aires", "Etc/GMT+12", "America/Port-au-Prince"} {
		if _, err := Zone(name); err != nil {
			t.Error(err)
		}
	}
}

func FuzzNextMovesOn(f *testing.F) {
	for i, text := range append(slices.Clone(expressions), "0 12 29 2 1", "0 0 13 * 5", "@weekly", "1-59/58 0 31 1-12/11 *", "* * * * *", "0 0 1 1 *") {
		f.Add(text, changes[i%len(changes)].zone, int64(1_700_000_000+i*10_000_000))
	}
	f.Add("0 0 1 1 *", "Europe/Berlin", time.Date(2040, 12, 31, 12, 0, 0, 0, time.UTC).Unix())
	f.Fuzz(func(t *testing.T, text, name string, from int64) {
		zone, err := Zone(name)
		if err != nil {
			return
		}
		e, err := Parse(text, zone)
		if err != nil {
			return
		}
		at := time.Unix(from%4_000_000_000, 0)
		for range 20 {
			next := e.Next(at)
			if next.IsZero() { // within 41 years a day of every expression comes
				t.Fatalf("%q in %s has no time after %s", text, name, at)
			}
			if !next.After(at) {
				t.Fatalf("%q in %s does not move on from %s: %s", text, name, at, next)
			}
			at = next
		}
	})
}
