package operate

import (
	"strings"

	"github.com/tidwall/gjson"
)

// validJobs: an id is letters, digits, dashes and underscores, and so part of a path.
func validJobs(ids ...string) error {
	for _, id := range ids {
		if len(id) < 26 || len(id) > 91 || strings.ContainsFunc(id, func(r rune) bool {
			return (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' ||
				r > 'z') && r != '-' && r != '_'
		}) {
			return misuse("%s is not the id of a job", quote(id))
		}
	}
	return nil
}

// waits reports whether a job in a state waits for an attempt.
func waits(state string) bool { return state == "ready" || state == "delayed" || state == "prepared" }

// attemptText is the attempt that a job is at, or that is next where it waits, of its tries. Those before a respawn
// count as used.
func attemptText(line gjson.Result) string {
	text := "-"
	if at := line.Get("attempt"); at.Type == gjson.Number {
		n := at.Int()
		if waits(line.Get("state").String()) {
			n++
		}
		text = digits(n)
	}
	if tries := line.Get("tries").Int(); tries != 0 { // 0, of PHP's: no limit
		text += " of " + digits(tries)
	}
	return text
}

// progressText is how far the work on a job got, "" where its worker did not say.
func progressText(line gjson.Result) string {
	text := escape(line.Get("note").String())
	if percent := line.Get("progress"); percent.Type == gjson.Number {
		text = strings.TrimSpace(digits(percent.Int()) + " % " + text)
	}
	return text
}
