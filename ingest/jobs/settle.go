package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition/job"
)

// settlement is one line of a settle: what a client did with a job.
type settlement struct {
	ID      string `json:"id"`
	Attempt int64  `json:"attempt"`
	Do      string `json:"do"`
	MS      int64  `json:"ms"`
	// DeadlineMS is that of the claim, for requeue: a repeat then takes the job from no other
	// client.
	DeadlineMS int64 `json:"deadline_ms"`
	// Result is of the work, for the follow-up of an ack: any JSON.
	Result json.RawMessage `json:"result"`
	// Error is why the work failed, for nack and bury: any text.
	Error string `json:"error"`
	// Progress is how far the work got, for touch: 0 to 100, and any text beside it.
	Progress *int64 `json:"progress"`
	Note     string `json:"note"`

	ack    *job.Ack
	change *job.Settle
	wrong  string // why the line says nothing; empty: it does
}

var verbs = map[string]job.Verb{"nack": job.Nack, "bury": job.Bury, "kill": job.Bury, "touch": job.Touch,
	"defer": job.Defer, "requeue": job.Requeue, "release": job.Release}

// maxSettleMS bounds how far ms reaches.
const maxSettleMS = int64(maxTTR / time.Millisecond)

// settle ends or changes leases, each line by itself.
func (a *api) settle(c *call) *ingest.Rejection {
	body, rejected := c.Body()
	if rejected != nil {
		return rejected
	}
	lines := wire.SplitLines(body)
	var all []*settlement
	for line, ok := lines.Next(); ok; line, ok = lines.Next() {
		if len(all) == a.cfg.MaxEntries {
			return ingest.Reject(wire.CodeTooManyEntries,
				fmt.Sprintf("a request settles at most %d jobs: send fewer", a.cfg.MaxEntries))
		}
		all = append(all, parseSettlement(c.namespace, c.queue(), line))
	}
	if len(all) == 0 {
		return ingest.Reject(wire.CodeEmptyBatch, "the body holds no line: send one a job")
	}
	if rejected := c.Reserve(len(all) * settleCost); rejected != nil {
		return rejected
	}
	a.run(c, all)
	if err := noneDone(all); err != nil {
		return a.reject(c, err)
	}
	return c.Answer(200, jsonType, appendSettled(nil, all))
}

// run does what settlements say.
func (a *api) run(c *call, all []*settlement) {
	var acks []*job.Ack
	var changes []*job.Settle
	for _, s := range all {
		switch {
		case s.ack != nil:
			s.ack.By = c.key.Name()
			acks = append(acks, s.ack)
		case s.change != nil:
			s.change.By = c.key.Name()
			changes = append(changes, s.change)
		}
	}
	a.Ack(acks...)
	a.Settle(changes...)
}

// settleCost is what a line takes beside its bytes, about.
const settleCost = 512

// parseSettlement reads a line. A job of another queue, or of none, is gone.
func parseSettlement(ns *job.Namespace, queue string, line []byte) *settlement {
	s := &settlement{}
	if !s.read(line) {
		if wrong := s.decode(line); wrong != "" {
			return &settlement{wrong: wrong}
		}
	}
	s.resolve(ns, queue)
	return s
}

// resolve checks a settlement, and finds its job.
func (s *settlement) resolve(ns *job.Namespace, queue string) {
	verb, known := verbs[s.Do]
	switch {
	case s.ID == "":
		s.wrong = "id is missing: it is the one that the claim answered"
	case !job.ValidID(s.ID):
		s.wrong = "id is not the id of a job: it is the one that the claim answered, 26 digits and upper-case letters, and behind a - your own " +
			"id if the publish gave one"
	case s.Do == "":
		s.wrong = "do is missing: it is ack, nack, bury, touch, defer, requeue or move"
	case !known && s.Do != "ack" && s.Do != "move", verb == job.Release && !ns.PHP:
		s.wrong = "do is ack, nack, bury, touch, defer, requeue or move"
	case verb == job.Defer && ns.PHP:
		s.wrong = "do is ack, nack, release, bury, touch, requeue or move in queues of PHP's"
	case s.Attempt < 0 || s.Attempt > job.MaxAttempt:
		s.wrong = fmt.Sprintf("attempt is 0 to %d; 0: any", job.MaxAttempt)
	case s.MS < 0 || s.MS > maxSettleMS:
		s.wrong = fmt.Sprintf("ms is 0 to %d", maxSettleMS)
	case s.MS > 0 && verb != job.Nack && verb != job.Release && verb != job.Touch && verb != job.Defer:
		s.wrong = "ms is for nack, touch and defer"
	case (verb == job.Touch || verb == job.Defer) && s.MS == 0:
		s.wrong = s.Do + " needs ms: how long the job is leased from now on"
	case len(s.Result) > 0 && s.Do != "ack":
		s.wrong = "result is for ack: what the follow-up tells of the work"
	case len(s.Result) > job.MaxResult:
		s.wrong = fmt.Sprintf("result has at most %d bytes", job.MaxResult)
	case s.Error != "" && verb != job.Nack && verb != job.Bury:
		s.wrong = "error is for nack and bury: why the work failed"
	case (s.Progress != nil || s.Note != "") && (verb != job.Touch || ns.PHP):
		s.wrong = "progress and note are for touch in namespaces of kind queue: how far the work got"
	case s.Note != "" && s.Progress == nil:
		s.wrong = "note goes with progress"
	case s.Progress != nil && (*s.Progress < 0 || *s.Progress > 100):
		s.wrong = "progress is 0 to 100"
	case s.DeadlineMS < 0 || s.DeadlineMS > 0 && verb != job.Requeue:
		s.wrong = "deadline_ms is for requeue: that of the claim"
	}
	if s.wrong != "" {
		return
	}
	ref, exists := ns.ParseID(queue, s.ID)
	switch {
	case !exists:
	case verb == 0:
		moved := s.Do == "move"
		s.ack = &job.Ack{Namespace: ns, Queue: queue, Ref: ref, Result: s.Result, Delete: moved, Moved: moved}
	default:
		s.change = &job.Settle{
			Namespace: ns,
			Queue:     queue,
			Ref:       ref,
			Attempt:   int(s.Attempt),
			Verb:      verb,
			After:     time.Duration(s.MS) * time.Millisecond,
			Deadline:  s.DeadlineMS,
			Error:     s.Error,
		}
		if s.Progress != nil {
			s.change.Progress = &job.Progress{Percent: int(*s.Progress), Note: s.Note}
		}
	}
}

// read reads a line as nearly all are: one object, of known fields as they are written here. false:
// it is another, which decode knows, at several times the cost.
func (s *settlement) read(line []byte) bool {
	if !wire.ValidJSON(line) {
		return false
	}
	object := gjson.ParseBytes(line)
	known := object.IsObject()
	object.ForEach(func(key, value gjson.Result) bool {
		var err error
		switch key.Str {
		case "id":
			s.ID, known = value.Str, value.Type == gjson.String
		case "do":
			s.Do, known = value.Str, value.Type == gjson.String
		case "error":
			s.Error, known = value.Str, value.Type == gjson.String
		case "note":
			s.Note, known = value.Str, value.Type == gjson.String
		case "progress":
			s.Progress = new(int64)
			*s.Progress, err = strconv.ParseInt(value.Raw, 10, 64)
		case "attempt":
			s.Attempt, err = strconv.ParseInt(value.Raw, 10, 64)
		case "ms":
			s.MS, err = strconv.ParseInt(value.Raw, 10, 64)
		case "deadline_ms":
			s.DeadlineMS, err = strconv.ParseInt(value.Raw, 10, 64)
		case "result":
			s.Result = []byte(value.Raw)
		default:
			known = false
		}
		known = known && err == nil
		return known
	})
	return known
}

// decode reads any line, and says what is wrong with it.
func (s *settlement) decode(line []byte) (wrong string) {
	*s = settlement{}
	switch err := decodeOne(line, s); {
	case err == errFollows:
		return "something follows the object: a line is one, " + lineForm
	case err != nil:
		return notASettlement(err)
	}
	return ""
}

var errFollows = errors.New("something follows the object")

// decodeOne reads an object that has no unknown keys, and that nothing follows: errFollows.
func decodeOne(text []byte, object any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(object); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errFollows
	}
	return nil
}

const lineForm = `such as {"id":"…","attempt":1,"do":"nack","ms":5000}`

// maxQuotedField is how much of a line an error quotes, in bytes.
const maxQuotedField = 32

// notASettlement says what is wrong with a line that does not decode.
func notASettlement(err error) string {
	var wrongType *json.UnmarshalTypeError
	switch {
	case errors.As(err, &wrongType):
		got, number, _ := strings.Cut(wrongType.Value, " ")
		article := "a "
		switch {
		case got == "array" || got == "object":
			article = "an "
		case got == "bool":
			got = "boolean"
		}
		switch {
		case wrongType.Field == "":
			return "the line is " + article + got + ": it is one object, " + lineForm + ", one line a job"
		case wrongType.Type.Kind() == reflect.String:
			return wrongType.Field + " is a string, not " + article + got
		case number != "":
			return wrongType.Field + " is a whole number below 2^63"
		}
		return wrongType.Field + " is a number, not " + article + got
	case strings.HasPrefix(err.Error(), "json: unknown field "):
		field := strings.TrimPrefix(err.Error(), "json: unknown field ")
		if len(field) > maxQuotedField {
			field = "of a long name"
		}
		return "unknown field " + field + ": a line has id, attempt, do, ms (for nack, touch and defer), deadline_ms (for requeue), result (for ack), error (for nack and bury), progress and note (for touch)"
	}
	return "the line is no JSON: it is one object, " + lineForm
}

// err is why the store did not answer about a line; nil: it did, or was not asked.
func (s *settlement) err() error {
	switch {
	case s.ack != nil:
		return s.ack.Err
	case s.change != nil:
		return s.change.Err
	}
	return nil
}

// noneDone is the error of a request of which nothing is known to be done.
func noneDone(all []*settlement) (err error) {
	for _, s := range all {
		if err = s.err(); err == nil {
			return nil
		}
	}
	return err
}

// appendSettled appends a result for each line.
func appendSettled(dst []byte, all []*settlement) []byte {
	dst = append(dst, `{"results":[`...)
	for i, s := range all {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendInt(append(dst, `{"i":`...), int64(i), 10)
		switch {
		case s.wrong != "":
			dst = append(append(dst, `,"error":"`...), wire.ReasonBadItem...)
			message, _ := json.Marshal(s.wrong) // a string cannot fail
			dst = append(append(dst, `","message":`...), message...)
		case s.err() != nil:
			rejected := Reject(s.err())
			dst = append(append(dst, `,"error":"`...), rejected.Code...)
			dst = append(dst, '"')
		default:
			dst = append(append(dst, `,"state":"`...), s.state()...)
			dst = append(dst, '"')
		}
		dst = append(dst, '}')
	}
	return append(dst, "]}\n"...)
}

// state is what the job is in now.
func (s *settlement) state() string {
	switch {
	case s.change != nil:
		return s.change.State.String()
	case s.ack != nil && s.ack.Moved && (s.ack.Acked || s.ack.Deleted):
		return "moved"
	case s.ack != nil && s.ack.Acked:
		return "acked"
	case s.ack != nil && s.ack.Deleted:
		return "deleted"
	}
	return job.Gone.String()
}
