package php

import (
	"bytes"
	"encoding/json"

	"github.com/tidwall/gjson"
)

// deliveries is what a payload says of its deliveries. Its attempts are found here and not in
// Redis, where to decode a MiB takes a tenth of a second, in which no other client is served.
type deliveries struct {
	attempts     int64 // counted so far; -1: it does not say
	digits       int   // where those of attempts begin, from 1; 0: it has none that can be replaced
	tries        int64 // -1: it names none
	until, limit int64 // retryUntil and timeoutAt, Unix s; 0: none
}

// maxAttempts bounds what is read as a number of deliveries.
const maxAttempts = 1 << 39

// readDeliveries reads a payload. Of two fields of a name the last counts, as in PHP.
func readDeliveries(payload []byte) deliveries {
	d := deliveries{attempts: -1, tries: -1}
	gjson.ParseBytes(payload).ForEach(func(key, value gjson.Result) bool {
		n := int64(-1)
		if value.Type == gjson.Number || value.Type == gjson.String { // a number as text counts in PHP
			if v := value.Float(); v >= 0 && v <= maxAttempts && v == float64(int64(v)) {
				n = int64(v)
			}
		}
		switch key.Str {
		case "attempts":
			d.attempts, d.digits = n, 0
			if isWhole(value) && value.Int() < 1<<53 { // Redis counts no further
				d.attempts, d.digits = value.Int(), value.Index+1
			}
		case "maxTries":
			d.tries = n
		case "retryUntil":
			d.until = max(0, n)
		case "timeoutAt":
			d.limit = max(0, n)
		}
		return true
	})
	return d
}

// attempt is the number of the delivery that is next, 1 the first.
func (d deliveries) attempt(f Flavor) int64 {
	if d.attempts < 0 {
		return 1
	}
	return d.attempts + 1 - f.first()
}

// last reports whether PHP's worker would let a payload fail whose next delivery failed at now, in ms.
func (d deliveries) last(f Flavor, tries, now int64) bool {
	over := func(at int64) bool { return at > 0 && at*1000 <= now }
	if d.tries >= 0 {
		tries = d.tries
	}
	return over(d.until) || over(d.limit) || d.until == 0 && tries > 0 && d.attempt(f) >= tries
}

// counting is how the delivery of a payload is counted whose attempts the claim did not find.
func counting(f Flavor, payload []byte, d deliveries) (verb string, number int64) {
	switch {
	case !json.Valid(payload) || bytes.TrimLeft(payload, " \t\r\n")[0] != '{':
		return "unreadable", 0
	case d.digits > 0:
		return "digits", int64(d.digits)
	case d.attempts < 0:
		return "append", f.first()
	}
	return "append", d.attempts
}
