package clickhouse

import (
	"bytes"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxRetryAfter bounds what an answer may ask for; no entry lives longer.
const maxRetryAfter = time.Hour

// A meaning is what an exception of ClickHouse asks of us, and how we call it. Its own text
// goes into dead letters only: it quotes the row that it could not read.
type meaning struct {
	kind kind
	text string
}

type kind int

const (
	// badData: a row is rejected for what is in it. Permanent: the drain bisects.
	badData kind = iota
	// operator: table, rights or settings. The entries are good and the fault can be mended, so
	// they wait: Open is called with back-off, and says what is wrong, until it is mended.
	operator
	// busy: the server wants fewer INSERTs.
	busy
	// veryBusy: it wants to merge what it has first.
	veryBusy
)

// meanings are the exceptions that say more than the status of the answer. The numbers never
// change: src/Common/ErrorCodes.cpp of ClickHouse.
var meanings = map[int]meaning{
	6: {badData, "a text that it cannot parse"}, 26: {badData, "a string that it cannot parse"},
	27: {badData, "a row that it cannot parse"}, 33: {badData, "a row that it cannot read whole"},
	38: {badData, "a date that it cannot parse"}, 41: {badData, "a time that it cannot parse"},
	43: {badData, "a value of an illegal type"}, 53: {badData, "a value of another type"},
	69: {badData, "a value out of bounds"}, 70: {badData, "a value that it cannot convert"},
	72: {badData, "a number that it cannot parse"}, 117: {badData, "incorrect data"},
	131: {badData, "a string that is too long"}, 321: {badData, "NULL where the column has none"},
	349: {badData, "NULL where the column has none"}, 376: {badData, "a UUID that it cannot parse"},
	395: {badData, "a row for which throwIf is true"}, 407: {badData, "a decimal that overflows"},
	469: {badData, "a row that violates a constraint"}, 691: {badData, "a value that its Enum has not"},

	10: {operator, "a column is missing"}, 16: {operator, "a column is missing"},
	47: {operator, "a column is missing"},
	60: {operator, "the table does not exist: deploy/sql/clickhouse.sql makes one"}, 81: {operator,
		"the database does not exist"},
	115: {operator, "a setting is unknown"}, 452: {operator, "the user may not change a setting"},
	164: {operator, "the user may only read"}, 291: {operator,
		"the user may not use the database"}, 497: {operator, "the user may not insert"},
	192: {operator, "the user is unknown"}, 193: {operator, "the password is wrong"}, 194: {operator,
		"a password is required"},
	195: {operator, "the user may not connect from this address"}, 516: {operator, "user or password is wrong"},

	201: {busy, "the user's quota is used up"}, 202: {busy, "too many queries at once"},
	241: {busy, "its memory limit is reached"},
	252: {veryBusy, "too many parts: its merges are behind"},
}

// answer is what came back, its body cut to maxAnswer bytes.
type answer sink.Answer

// insertErr says what the answer to an INSERT means; nil: the rows are written. An INSERT has
// an empty answer, so any text is a failure that came after the status, or another server's.
func (a answer) insertErr() error {
	if err := a.err(); err != nil {
		return err
	}
	if len(bytes.TrimSpace(a.Body)) > 0 {
		return fmt.Errorf("answered %d with a text where an INSERT has none", a.Status)
	}
	return nil
}

// err says what an answer means. The code of an exception decides, whatever the status; 200
// with an exception is one that came late.
//
//	a code in meanings               bad data Permanent; operator ErrNotConnected, Unsent; busy
//	                                 Throttle for 1 s; too many parts Throttle for 5 s
//	another code                     by the status; plain with 2xx
//	429, 503                         plain; with Retry-After Throttle, at most 1 h
//	408, 5xx                         plain
//	101, 3xx, 401, 403, 404, 405     about the endpoint: ErrNotConnected, Unsent
//	other 4xx                        Permanent
func (a answer) err() error {
	code := a.code()
	err := fmt.Errorf("answered %d", a.Status)
	if code != 0 {
		err = fmt.Errorf("ClickHouse error %d, status %d", code, a.Status)
		if m, ok := meanings[code]; ok {
			err = fmt.Errorf("ClickHouse error %d: %s", code, m.text)
			switch m.kind {
			case badData:
				return sink.Permanent(sink.WithDetail(err, a.Body))
			case operator:
				return sink.Unsent(fmt.Errorf("%w: %w", err, sink.ErrNotConnected))
			case busy:
				return sink.Throttle(err, time.Second)
			case veryBusy:
				return sink.Throttle(err, 5*time.Second)
			}
		}
	}
	switch {
	case a.Status/100 == 2 && code == 0:
		return nil
	case a.Status == http.StatusTooManyRequests, a.Status == http.StatusServiceUnavailable:
		if seconds, bad := strconv.ParseUint(a.Header.Get("Retry-After"), 10, 16); bad == nil && seconds > 0 {
			return sink.Throttle(err, min(time.Duration(seconds)*time.Second, maxRetryAfter))
		}
	case a.Status == http.StatusRequestTimeout:
	case a.Status == http.StatusSwitchingProtocols, a.Status/100 == 3, a.Status == http.StatusUnauthorized, a.Status == http.StatusForbidden,
		a.Status == http.StatusNotFound, a.Status == http.StatusMethodNotAllowed:
		return sink.Unsent(fmt.Errorf("%w: %w", err, sink.ErrNotConnected))
	case a.Status/100 == 4:
		return sink.Permanent(sink.WithDetail(err, a.Body))
	}
	return err
}

// code is that of the exception, 0 where there is none. Old servers have it only in the body:
// "Code: 60, e.displayText() = …", now "Code: 60. DB::Exception: …".
func (a answer) code() int {
	if n, err := strconv.Atoi(a.Header.Get("X-ClickHouse-Exception-Code")); err == nil {
		return n
	}
	rest, found := bytes.CutPrefix(bytes.TrimSpace(a.Body), []byte("Code: "))
	end := bytes.IndexFunc(rest, func(r rune) bool { return r < '0' || r > '9' })
	if !found || end < 0 {
		return 0
	}
	n, err := strconv.Atoi(string(rest[:end]))
	if err != nil {
		return 0
	}
	return n
}
