package phpmodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// What PHP does, command by command.

// phpMigrate moves what is due by PHP's clock, in s, as think-queue's transaction and
// Laravel's script do.
func (q *Queue) phpMigrate(set string, clock int64) {
	from := q.setOf(set)
	all := due(from, clock*1000)
	for _, m := range all {
		delete(from, m)
		if set == "reserved" && q.flavor.onRelease {
			m = counted(m, q.flavor.first)
		}
		q.phpPush(m)
	}
}

func (q *Queue) setOf(name string) map[string]int64 {
	if name == "reserved" {
		return q.reserved
	}
	return q.delayed
}

func (q *Queue) phpPop() (string, bool) {
	if len(q.ready) == 0 {
		return "", false
	}
	p := q.ready[0]
	q.ready = q.ready[1:]
	if q.flavor.notify {
		q.notify = max(0, q.notify-1)
	}
	return p, true
}

// phpAdd is ZADD, with PHP's whole seconds. It tells whether the member was new.
func (q *Queue) phpAdd(set, member string, at int64) bool {
	_, there := q.setOf(set)[member]
	q.setOf(set)[member] = at * 1000
	return !there
}

// phpRemove is ZREM of a reservation.
func (q *Queue) phpRemove(member string) bool {
	_, there := q.reserved[member]
	delete(q.reserved, member)
	return there
}

// phpPush is RPUSH.
func (q *Queue) phpPush(p string) {
	q.ready = append(q.ready, p)
	if q.flavor.notify {
		q.notify++
	}
}

// found is how often a payload was delivered, and where it says so.
type found struct {
	value    int64 // -1: it does not say
	from, to int   // of the digits; to 0: no such place
}

var (
	object = regexp.MustCompile(`^\s*\{`)
	tail   = regexp.MustCompile(`[{,]\s*"attempts"\s*:\s*(\d+)\s*(?:,\s*"delay"\s*:\s*[0-9A-Za-z]+\s*)?\}\s*$`)
	digits = regexp.MustCompile(`^\d+$`)
)

const maxWhole = 1 << 53

// wholeOf reads a number, or a number as text, as the scripts do.
func wholeOf(raw json.RawMessage) int64 {
	text := string(raw)
	if strings.HasPrefix(text, `"`) && json.Unmarshal(raw, &text) != nil {
		return -1
	}
	v, err := strconv.ParseFloat(strings.TrimSpace(text), 64)
	if err != nil || v < 0 || v >= maxWhole || v != float64(int64(v)) {
		return -1
	}
	return int64(v)
}

// tailOf finds the attempts of a payload where PHP's libraries write them.
func tailOf(p string) (found, bool) {
	skip := max(0, len(p)-96)
	if m := tail.FindStringSubmatchIndex(p[skip:]); m != nil && object.MatchString(p) {
		if v := wholeOf(json.RawMessage(p[skip+m[2] : skip+m[3]])); v >= 0 {
			return found{v, skip + m[2], skip + m[3]}, true
		}
	}
	return found{}, false
}

// isObject: it begins and ends as a JSON object.
func isObject(p string) bool {
	return object.MatchString(p) && strings.HasSuffix(strings.TrimRight(p, " \n\t\r"), "}")
}

// attemptsOf finds the attempts of a payload; false where it is no JSON object. Elsewhere than at
// the end that is for the caller of the script.
func attemptsOf(p string) (found, bool) {
	if f, ok := tailOf(p); ok {
		return f, true
	}
	if !object.MatchString(p) || !json.Valid([]byte(p)) {
		return found{}, false
	}
	f := found{value: -1}
	d := json.NewDecoder(strings.NewReader(p))
	_, _ = d.Token()
	for d.More() {
		key, _ := d.Token()
		var raw json.RawMessage
		_ = d.Decode(&raw)
		if key != "attempts" {
			continue
		}
		f = found{value: wholeOf(raw)}
		if f.value >= 0 && digits.Match(raw) {
			f.to = int(d.InputOffset())
			f.from = f.to - len(raw)
		}
	}
	return f, true
}

func (f found) or(first int64) int64 {
	if f.value < 0 {
		return first
	}
	return f.value
}

func appendField(p, field string) (text string, at int) {
	at = len(strings.TrimRight(p, " \n\t\r")) - 1
	comma := ","
	if strings.TrimSpace(strings.TrimSpace(p[:at])) == "{" {
		comma = ""
	}
	return p[:at] + comma + field + "}", at
}

// write is the payload with another number of attempts, and where it differs first.
func (f found) write(p string, n int64) (text string, at int) {
	if f.to > 0 {
		return p[:f.from] + strconv.FormatInt(n, 10) + p[f.to:], f.from
	}
	return appendField(p, fmt.Sprint(`"attempts":`, n))
}

// counted is a payload with one attempt more; itself where it is no JSON object.
func counted(p string, first int64) string {
	f, ok := attemptsOf(p)
	if !ok {
		return p
	}
	p, _ = f.write(p, f.or(first)+1)
	return p
}
