package operate

import "strings"

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
func attemptText(state string, attempt *int, tries int) string {
	text := digitsOr(attempt, "-")
	if attempt != nil && waits(state) {
		text = digits(*attempt + 1)
	}
	if tries == 0 { // of PHP's: no limit
		return text
	}
	return text + " of " + digits(tries)
}

// progressText is how far the work on a job got, "" where its worker did not say.
func progressText(percent *int, note string) string {
	text := escape(note)
	if percent != nil {
		text = strings.TrimSpace(digits(*percent) + " % " + text)
	}
	return text
}
