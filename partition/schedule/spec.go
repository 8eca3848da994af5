// Package schedule says when schedules fire, and fires them. A schedule publishes a job into a
// queue at each of its ticks: exactly once a tick, over crashes and with any number of
// processes, because the script that publishes compares the whole state with what its caller
// read. What only Go knows are times: [Plan] is a pure function of specification, state and
// clock.
//
//	spec.go   what a caller asks for: when, and what to publish
//	state.go  what has become of it
//	plan.go   which ticks are due, which of them run, and what comes next
//	firer.go  the loop that fires
//	cron      times of expressions, in zones
package schedule

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule/cron"
)

// A Spec is the specification of a schedule. One of Cron, Every and At is set.
type Spec struct {
	Owner string `json:"owner,omitempty"` // the service that registered it; first, as the scripts look there
	By    string `json:"by,omitempty"`    // the token that put it, whose rate holds for what it publishes; "": none

	Cron  string    `json:"cron,omitempty"` // five fields, or @hourly, @daily, @weekly, @monthly, @yearly
	Every Duration  `json:"every,omitzero"` // 1s to 10 years, from From on
	At    time.Time `json:"at,omitzero"`    // once
	From  time.Time `json:"from,omitzero"`  // with Every: a tick of the grid; default the Unix epoch
	Zone  string    `json:"tz,omitempty"`   // of Cron: an IANA name; default UTC
	// Jitter lets each tick fire up to so much later, at most until the next tick: the same for
	// every process. 0 to 24h.
	Jitter Duration `json:"jitter,omitzero"`

	Data       json.RawMessage   `json:"data,omitempty"`        // payload of the jobs; without it and Base64, null
	Base64     *string           `json:"data_base64,omitempty"` // payload that is no JSON
	Attributes map[string]string `json:"attributes,omitempty"`  // at most 16
	Tries      int               `json:"tries,omitempty"`       // of each job: 1 to 65535; default that of the queue
	TTL        Duration          `json:"ttl,omitzero"`          // of each job; default 0, for ever
	Shards     int               `json:"shards,omitempty"`      // jobs of a run: 1 to 1000; default 1

	Overlap string    `json:"overlap,omitempty"`  // allow (default), skip or buffer
	Missed  string    `json:"missed,omitempty"`   // one (default), all or skip
	Grace   *Duration `json:"grace,omitempty"`    // default 1m; 0 to 24h
	Window  Duration  `json:"window,omitzero"`    // default none
	Until   time.Time `json:"until,omitzero"`     // no tick after; default none
	MaxRuns int64     `json:"max_runs,omitempty"` // no run beyond; default none

	OnEnd string `json:"on_end,omitempty"` // queue that gets a follow-up for each job; default none
	Track bool   `json:"track,omitempty"`  // count the jobs that ended well, and that did not

	ticks   func(after time.Time) time.Time // zero: none
	payload []byte
}

// Duration is a time.Duration, in JSON as "1m30s".
type Duration time.Duration

// MarshalText writes it.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// UnmarshalText reads it.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil {
		return fmt.Errorf("%.40q is no duration: write one such as 90s or 1h30m", text)
	}
	*d = Duration(v)
	return nil
}

// Bounds of a specification.
const (
	MaxSpec       = 64 << 10 // bytes of JSON
	maxRun        = 1 << 20  // bytes of the jobs of a run
	maxAttributes = 16
	minEvery      = time.Second
	maxEvery      = 10 * 366 * 24 * time.Hour
	maxJitter     = 24 * time.Hour
	defaultGrace  = time.Minute
)

// FieldError says what is wrong with a field of a specification, and what to write instead.
type FieldError struct{ Field, Value, Want string }

func (e *FieldError) Error() string {
	switch {
	case e.Field == "":
		return "the specification " + e.Want
	case e.Value == "":
		return e.Field + ": " + e.Want
	}
	return fmt.Sprintf("%s: %.80q: %s", e.Field, e.Value, e.Want)
}

// Parse reads a specification from JSON, strictly: a field that is unknown or given twice is an
// error, as a mistyped one would silently have its default. Its errors are *FieldError.
func Parse(text []byte) (*Spec, error) {
	if len(text) > MaxSpec {
		return nil, tooLong(len(text))
	}
	s, err := read(text)
	if err == nil {
		s.By = "" // whoever puts it says so
		err = s.bounded()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// bounded checks the length of what is stored, which may be more than what came.
func (s *Spec) bounded() error {
	if n := len(s.JSON()); n > MaxSpec {
		return tooLong(n)
	}
	return nil
}

func tooLong(n int) error {
	return &FieldError{"", "", fmt.Sprintf("has %d bytes as it is stored; write %d at most", n, MaxSpec)}
}

// read is Parse of what is stored, which was bounded when it came.
func read(text []byte) (*Spec, error) { return readIn(text, cron.Zone) }

// zones finds the time zone of a name: cron.Zone, or the tzdata of another program in tests.
type zones func(name string) (*time.Location, error)

func readIn(text []byte, zone zones) (*Spec, error) {
	if err := eachOnce(text); err != nil {
		return nil, err
	}
	s := &Spec{}
	if err := decode(text, s); err != nil {
		return nil, err
	}
	if err := s.complete(zone); err != nil {
		return nil, err
	}
	return s, nil
}

// decode reads one JSON object with no unknown field.
func decode(text []byte, into any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return unreadable(err)
	}
	if _, err := d.Token(); err != io.EOF {
		return &FieldError{"", "", "is one JSON object, and nothing behind it"}
	}
	return nil
}

// eachOnce rejects what encoding/json takes: an object that names a key twice, at any depth up
// to that of the attributes.
func eachOnce(text []byte) error {
	d := json.NewDecoder(bytes.NewReader(text))
	var keys []map[string]bool // of each object that is open; nil: an array
	name := true
	for {
		t, err := d.Token()
		if err == io.EOF {
			return nil
		} else if err != nil {
			return unreadable(err)
		}
		inObject := len(keys) > 0 && keys[len(keys)-1] != nil
		if key, is := t.(string); is && inObject && name {
			if keys[len(keys)-1][key] {
				return &FieldError{key, "", "is given twice: write it once"}
			}
			keys[len(keys)-1][key], name = true, false
			continue
		}
		name = true
		switch t {
		case json.Delim('{'):
			keys = append(keys, map[string]bool{})
		case json.Delim('['):
			keys = append(keys, nil)
		case json.Delim('}'), json.Delim(']'):
			keys = keys[:len(keys)-1]
		}
		if len(keys) > 64 {
			return &FieldError{"", "", "nests deeper than 64 levels"}
		}
	}
}

func unreadable(err error) error {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		want := strings.ReplaceAll(kind.Type.String(), "schedule.Duration", `a text, such as "90s"`)
		return &FieldError{kind.Field, kind.Value, "want " + want}
	}
	if name, unknown := strings.CutPrefix(err.Error(), "json: unknown field "); unknown {
		return &FieldError{strings.Trim(name, `"`), "", "there is no such field"}
	}
	return &FieldError{"", "", "cannot be read: " + err.Error()}
}

// complete checks the fields, and works out the times.
func (s *Spec) complete(zone zones) error {
	var wrong *FieldError
	check := func(ok bool, field string, value any, want string) {
		if !ok && wrong == nil {
			wrong = &FieldError{field, fmt.Sprint(value), want}
		}
	}
	times := 0
	for _, is := range []bool{s.Cron != "", s.Every != 0, !s.At.IsZero()} {
		if is {
			times++
		}
	}
	check(s.Owner == "" || partition.ValidScheduleName(s.Owner), "owner", s.Owner, "write the name of an owner")
	check(times == 1, "cron", s.Cron, "write one of cron, every and at")
	check(s.Every == 0 || s.Every >= Duration(minEvery) && s.Every <= Duration(maxEvery), "every",
		time.Duration(s.Every), "write 1s to 87840h")
	check(s.From.IsZero() || s.Every != 0, "from", s.From, "is for every")
	check(s.Zone == "" || s.Cron != "", "tz", s.Zone, "is for cron")
	check(s.Jitter >= 0 && s.Jitter <= Duration(maxJitter), "jitter", time.Duration(s.Jitter),
		"write 0s to 24h")
	check(s.Data == nil || s.Base64 == nil, "data_base64", "", "write data or data_base64")
	check(s.Tries >= 0 && s.Tries <= job.MaxTries, "tries", s.Tries, "write 1 to 65535")
	check(s.TTL >= 0 && s.TTL <= Duration(job.MaxTTL), "ttl", time.Duration(s.TTL),
		"write 0s, for ever, to "+job.MaxTTL.String())
	check(s.Shards >= 0 && s.Shards <= job.MaxMessages, "shards", s.Shards, "write 1 to 1000")
	check(slices.Contains([]string{"", "allow", "skip", "buffer"}, s.Overlap), "overlap", s.Overlap,
		"write allow, skip or buffer")
	check(slices.Contains([]string{"", "one", "all", "skip"}, s.Missed), "missed", s.Missed,
		"write one, all or skip")
	check(s.grace() >= 0 && s.grace() <= 24*time.Hour, "grace", s.grace(), "write 0s to 24h")
	check(s.Window >= 0, "window", time.Duration(s.Window), "write 0s, for none, or more")
	check(s.MaxRuns >= 0, "max_runs", s.MaxRuns, "write 1 or more")
	check(s.OnEnd == "" || partition.ValidOwnName(s.OnEnd), "on_end", s.OnEnd, "write the name of a queue")
	check(len(s.Attributes) <= maxAttributes, "attributes", len(s.Attributes), "write 16 at most")
	for _, name := range slices.Sorted(maps.Keys(s.Attributes)) {
		check(partition.ValidAttribute(name), "attributes", name,
			"a name has 1 to 128 letters, digits, dots, dashes and underscores")
		check(!partition.ReservedAttribute(name), "attributes", name, "is set by Spillway")
	}
	for field, at := range map[string]time.Time{"at": s.At, "until": s.Until, "from": s.From} {
		check(at.IsZero() || at.Year() >= 1970 && at.Year() < 2200, field, at, "write a time from 1970 to 2199")
	}
	if wrong != nil {
		return wrong
	}
	if s.payload = s.Data; len(s.payload) == 0 {
		s.payload = []byte("null")
	}
	if s.Base64 != nil {
		var err error
		if s.payload, err = base64.StdEncoding.DecodeString(*s.Base64); err != nil {
			return &FieldError{"data_base64", *s.Base64, "write base64, as of RFC 4648, section 4"}
		}
	}
	if s.Size() > maxRun {
		return &FieldError{"shards", strconv.Itoa(s.Shards), "the jobs of a run have 1 MiB together at most"}
	}
	return s.setTicks(zone)
}

// setTicks makes the function of the times.
func (s *Spec) setTicks(zone zones) error {
	switch {
	case s.Cron != "":
		location, err := zone(cmp.Or(s.Zone, "UTC"))
		if err != nil {
			return &FieldError{"tz", s.Zone, err.Error()}
		}
		expression, err := cron.Parse(s.Cron, location)
		if err != nil {
			return &FieldError{"cron", s.Cron, err.Error()}
		}
		s.ticks = expression.Next
	case s.Every != 0:
		grid := s.From
		if grid.IsZero() {
			grid = time.Unix(0, 0)
		}
		s.ticks = func(after time.Time) time.Time { return nextOf(grid, time.Duration(s.Every), after) }
	default:
		s.ticks = func(after time.Time) time.Time {
			if s.At.After(after) {
				return s.At
			}
			return time.Time{}
		}
	}
	return nil
}

// nextOf is the first time of a grid after another; a grid begins at its first time.
func nextOf(grid time.Time, every time.Duration, after time.Time) time.Time {
	if after.Before(grid) {
		return grid
	}
	return grid.Add((after.Sub(grid)/every + 1) * every)
}

func (s *Spec) grace() time.Duration {
	if s.Grace == nil {
		return defaultGrace
	}
	return time.Duration(*s.Grace)
}

// JSON is the specification as it was given, in one form.
func (s *Spec) JSON() []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false) // which makes six bytes of one
	if err := e.Encode(s); err != nil {
		panic(err) // it was read from JSON
	}
	return bytes.TrimSuffix(text.Bytes(), []byte("\n"))
}

// Tag names the text of a specification.
func Tag(text []byte) string {
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:9])
}

// Next is the first tick after a time, Unix ms; 0: there is none.
func (s *Spec) Next(after int64) int64 {
	t := s.ticks(time.UnixMilli(after))
	if t.IsZero() || !s.Until.IsZero() && t.After(s.Until) {
		return 0
	}
	if at := t.UnixMilli(); at > after {
		return at
	}
	return s.Next(after + 1) // a grid between two ms
}

// fires is when a tick fires: itself and its jitter, which is the same in every process. seed
// is of the schedule.
func (s *Spec) fires(tick int64, seed uint64) int64 {
	if tick == 0 || s.Jitter == 0 {
		return tick
	}
	most := time.Duration(s.Jitter).Milliseconds()
	if next := s.Next(tick); next > 0 {
		most = min(most, next-tick)
	}
	if most <= 0 {
		return tick
	}
	var b [16]byte
	binary.LittleEndian.PutUint64(b[:8], seed)
	binary.LittleEndian.PutUint64(b[8:], uint64(tick)) // #nosec G115 -- only bits
	sum := sha256.Sum256(b[:])
	return tick + int64(binary.LittleEndian.Uint64(sum[:])%uint64(most)) // #nosec G115 -- less than most
}

// seedOf tells the jitter of one schedule from that of another.
func seedOf(namespace, queue, name string) uint64 {
	sum := sha256.Sum256([]byte(namespace + " " + queue + " " + name))
	return binary.LittleEndian.Uint64(sum[:])
}

// Runs are runs with the jobs of a schedule called name, at ticks.
func (s *Spec) Runs(name string, ticks []int64, cause byte) job.Runs {
	r := job.Runs{Track: s.Track, OnEnd: s.OnEnd, Tries: s.Tries, TTL: time.Duration(s.TTL)}
	for _, tick := range ticks {
		r.List = append(r.List, s.run(name, tick, cause))
	}
	return r
}

func (s *Spec) run(name string, tick int64, cause byte) job.ScheduleRun {
	r := job.ScheduleRun{Tick: tick, Cause: cause}
	attributes := maps.Clone(s.Attributes)
	if attributes == nil {
		attributes = map[string]string{}
	}
	attributes["schedule"] = name
	attributes["tick"] = TickText(tick)
	attributes["cause"] = causes[cause]
	for i := range s.Jobs() {
		if s.Shards > 0 {
			attributes["shard_index"], attributes["shard_total"] = strconv.Itoa(i), strconv.Itoa(s.Shards)
		}
		text, _ := json.Marshal(attributes) // of strings
		r.Messages = append(r.Messages, job.Message{Payload: s.payload, Attributes: text})
	}
	return r
}

// Jobs is how many jobs a run has.
func (s *Spec) Jobs() int { return max(1, s.Shards) }

// Counts is what a run takes of the rate of a token.
func (s *Spec) Counts() int { return job.WithFollowUps(s.Jobs(), s.OnEnd) }

// Payload is that of each job.
func (s *Spec) Payload() []byte { return s.payload }

// RunsAtOnce is how many runs fit into one call of the store: 32, of 1,000 jobs and 1 MiB together.
func (s *Spec) RunsAtOnce() int { return max(1, min(planRuns, planJobs/s.Jobs(), maxRun/s.Size())) }

// Size is about what the jobs of a run take, in bytes.
func (s *Spec) Size() int {
	n := len(s.payload) + 128
	for name, value := range s.Attributes {
		n += len(name) + len(value) + 6
	}
	return n * s.Jobs()
}

// ErrTooLarge: a job of a run is larger than a publish may store.
var ErrTooLarge = errors.New("data and attributes are larger than max_entry")

// causes are the attribute cause by their letter.
var causes = map[byte]string{'d': "due", 'c': "caught_up", 'w': "waited", 't': "triggered",
	'b': "backfilled"}
