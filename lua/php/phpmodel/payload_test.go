package phpmodel

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

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

// attemptsOf finds the attempts of a payload; false where it is no JSON object. Unlike the
// script it reads the object token by token.
func attemptsOf(p string) (found, bool) {
	if !object.MatchString(p) {
		return found{}, false
	}
	skip := max(0, len(p)-96)
	if m := tail.FindStringSubmatchIndex(p[skip:]); m != nil {
		if v := wholeOf(json.RawMessage(p[skip+m[2] : skip+m[3]])); v >= 0 {
			return found{v, skip + m[2], skip + m[3]}, true
		}
	}
	if !json.Valid([]byte(p)) {
		return found{}, false
	}
	f := found{value: -1}
	d := json.NewDecoder(strings.NewReader(p))
	_, _ = d.Token()
	for d.More() {
		key, _ := d.Token()
		end := int(d.InputOffset())
		literal := strings.HasSuffix(p[:end], `"attempts"`)
		var raw json.RawMessage
		_ = d.Decode(&raw)
		if key != "attempts" {
			continue
		}
		f = found{value: wholeOf(raw)}
		if literal && f.value >= 0 && digits.Match(raw) {
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
