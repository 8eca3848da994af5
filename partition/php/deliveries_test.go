package php

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	luaphp "github.com/spillway-io/spillway/lua/php"
	"github.com/spillway-io/spillway/partition/job"
)

// A MiB takes 0.1 s to decode in Redis, which serves nobody else meanwhile: no script of PHP's queues decodes anything.
func TestNoScriptDecodesAPayload(t *testing.T) {
	t.Parallel()
	for _, script := range luaphp.All() {
		if strings.Contains(script.Source, "cjson") {
			t.Errorf("%s decodes JSON in Redis", script.Name)
		}
	}
}

type random struct{ *rand.Rand }

func (r random) pick(s ...string) string { return s[r.Intn(len(s))] }
func (r random) space() string           { return r.pick("", "", "", " ", "\n", "\t ", "  ") }

func (r random) text() string {
	var b strings.Builder
	for range r.Intn(5) {
		b.WriteString(r.pick(`a`, `attempts`, `\"attempts\":3`, `,\"attempts\":4}`, `{`, `}`, `\\`, `\u0061`, `ü`, `你`, `\/`, `:`, `,`,
			`1`, "\xff", `\ud83d\ude00`))
	}
	return `"` + b.String() + `"`
}

func (r random) number() string {
	return r.pick("0", "1", "3", "12", "12345678901234567", "1.0", "-1", "1e3", "2.50", "98765432109876543210", "7", "8", "-1.5", "-2.5")
}

func (r random) value(depth int) string {
	k := r.Intn(9)
	if depth > 4 && k > 5 {
		k = 0
	}
	switch k {
	case 0, 1:
		return r.number()
	case 2, 3:
		return r.text()
	case 4:
		return r.pick("true", "false", "null")
	case 5:
		return r.pick("{}", "[]", `""`)
	case 6:
		var all []string
		for range r.Intn(4) {
			all = append(all, r.value(depth+1))
		}
		return "[" + r.space() + strings.Join(all, r.space()+","+r.space()) + r.space() + "]"
	}
	var all []string
	for range r.Intn(5) {
		key := r.pick(r.text(), `"attempts"`, `"data"`, `"job"`, `"delay"`, `"id"`)
		all = append(all, key+r.space()+":"+r.space()+r.value(depth+1))
	}
	return "{" + r.space() + strings.Join(all, r.space()+","+r.space()) + r.space() + "}"
}

func (r random) payload() string {
	fields := []string{`"job":"J"`, `"data"` + r.space() + ":" + r.space() + r.value(0), `"id":` + r.text()}
	switch r.Intn(9) {
	case 0: // none
	case 1:
		fields = append(fields, `"attempts":`+r.pick(`"3"`, "null", "2.0", "-1", "1e1", `"x"`, "true", "[]", "{}", "9007199254740991", "9007199254740992",
			"12345678901234567890123", "1e300", "-1.5", `"nan"`, "0.5"))
	case 2:
		fields = append(fields, r.pick(`"\u0061ttempts"`, `"attempt\u0073"`)+":"+r.pick("4", "-1.5", `"5"`), `"attempts"`+r.space()+":3")
	default:
		fields = append(fields, `"attempts"`+r.space()+":"+r.space()+r.pick("0", "1", "2", "7", "8", "41", "999999"))
	}
	if r.Intn(2) == 0 {
		r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
	}
	if r.Intn(3) == 0 {
		fields = append(fields, `"delay":`+r.pick("null", "5", "{}"))
	}
	if r.Intn(3) == 0 {
		fields = append(fields, `"tags":[`+r.text()+`,"`+strings.Repeat("x", r.Intn(150))+`"]`)
	}
	return r.space() + "{" + r.space() + strings.Join(fields, r.space()+","+r.space()) + r.space() + "}" + r.space()
}

func fieldsOf(s string) (map[string]any, error) {
	d := json.NewDecoder(strings.NewReader(s))
	d.UseNumber()
	var v map[string]any
	err := d.Decode(&v)
	return v, err
}

var cut = regexp.MustCompile(`(?i)\\ud[89a-f]`) // PHP and cjson want surrogates in pairs

// wrongly says what is wrong with got, the payload p with one attempt more; "" nothing.
func wrongly(p, got string) string {
	before, err := fieldsOf(p)
	if err != nil || !json.Valid([]byte(p)) {
		return "" // PHP cannot read it: a dead letter, or its worker says so
	}
	if got == "" {
		if cut.MatchString(p) {
			return ""
		}
		return "it is no JSON object"
	}
	after, err := fieldsOf(got)
	if err != nil {
		return "it is JSON no more: " + err.Error()
	}
	was := max(0, readDeliveries([]byte(p)).attempts)
	if fmt.Sprint(after["attempts"]) != fmt.Sprint(was+1) {
		return fmt.Sprintf("attempts %v became %v", before["attempts"], after["attempts"])
	}
	delete(before, "attempts")
	delete(after, "attempts")
	if !reflect.DeepEqual(before, after) {
		return "another field changed"
	}
	x, y := 0, 0
	for x < len(p) && x < len(got) && p[x] == got[x] {
		x++
	}
	for y < len(p)-x && y < len(got)-x && p[len(p)-1-y] == got[len(got)-1-y] {
		y++
	}
	if middle := got[x : len(got)-y]; bytes.ContainsAny([]byte(middle), `{[`) || len(middle) > 32 {
		return "more than the digits changed: " + middle
	}
	return ""
}

// counted is a payload with one attempt more, as lua/php writes it; "" where it is no job.
func counted(p string) string {
	d := readDeliveries([]byte(p))
	verb, n := counting(Laravel, []byte(p), d)
	switch verb {
	case unreadable:
		return ""
	case "digits":
		return p[:n-1] + strconv.FormatInt(d.attempts+1, 10) + strings.TrimLeft(p[n-1:], "0123456789")
	}
	end := strings.LastIndex(p, "}")
	comma := ","
	if strings.TrimSpace(p[:end]) == "{" {
		comma = ""
	}
	return p[:end] + comma + fmt.Sprintf(`"attempts":%d}`, n+1)
}

func TestOnlyTheDigitsOfAttemptsChange(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	r := random{rand.New(rand.NewSource(1))}
	for range 10 {
		pushed := map[string]bool{}
		for range 100 {
			if p := r.payload(); !pushed[p] {
				pushed[p] = true
				s.redis.RPush(t.Context(), "queues:mail", p)
			}
		}
		var jobs []string
		for _, j := range s.claim(100, "mail") {
			jobs = append(jobs, string(j.Payload))
		}
		members := map[string]bool{}
		for _, m := range s.redis.ZRange(t.Context(), "queues:mail:reserved", 0, -1).Val() {
			members[m] = true
		}
		for _, p := range jobs {
			want := counted(p)
			if delete(pushed, p); !members[want] {
				t.Errorf("%q is not reserved as %q", p, want)
			} else if why := wrongly(p, want); why != "" {
				t.Errorf("%s\n  %q\n  %q", why, p, want)
			}
		}
		for p := range pushed { // dead
			if why := wrongly(p, ""); why != "" {
				t.Errorf("%s: %q", why, p)
			}
		}
		s.redis.Del(t.Context(), "queues:mail:reserved")
	}
}

func FuzzAttempts(f *testing.F) {
	r := random{rand.New(rand.NewSource(2))}
	for range 50 {
		f.Add(r.payload())
	}
	for _, p := range []string{"", "{}", "[]", "{\"a\":1}\x00", `{"attempts":007}`, `{"attempts":0x10}`, `{"attempts":nan}`, `{"attempts":1}}`, `{x,"attempts":1}`, `{"attempts":1e999}`,
		`{"n":1e999,"attempts":1,"id":"x"}`, ` {"attempts" : 1}`} {
		f.Add(p)
	}
	f.Fuzz(func(t *testing.T, p string) {
		if why := wrongly(p, counted(p)); why != "" {
			t.Errorf("%s\n  %q\n  %q", why, p, counted(p))
		}
	})
}

// The last try is the one after which PHP's worker would let the job fail.
func TestANackAfterTheLastTryDies(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, func(p *Policy) { p.Rules, p.Tries = []job.Rule{{Match: "mail"}}, 2 })
	soon := time.Now().Unix()
	for _, row := range []struct {
		fields  string
		earlier int // deliveries before this one
		dies    bool
	}{
		{`"id":1`, 0, false},
		{`"id":1`, 1, true},
		{`"maxTries":null`, 1, true},
		{`"maxTries":3`, 1, false},
		{`"maxTries":3`, 2, true},
		{`"maxTries":0`, 9, false},
		{`"maxTries":"1"`, 0, true},
		{`"maxTries":[]`, 0, false},
		{fmt.Sprint(`"retryUntil":`, soon+1000), 9, false},
		{fmt.Sprint(`"retryUntil":`, soon-1000), 0, true},
		{fmt.Sprint(`"timeoutAt":`, soon+1000), 0, false},
		{fmt.Sprint(`"timeoutAt":`, soon+1000), 1, true},
		{fmt.Sprint(`"timeoutAt":`, soon-1000), 0, true},
		{`"retryUntil":null,"maxTries":1`, 0, true},
		{`x`, 1, true}, // it ends as an object, and is none
	} {
		for _, form := range []string{`{%[1]s,"attempts":%[2]d}`, `{"attempts":%[2]d,%[1]s}`} {
			payload := fmt.Sprintf(form, row.fields, row.earlier)
			if row.fields == "x" && form[2] == 'a' {
				continue // PHP cannot read it
			}
			s.redis.RPush(t.Context(), "queues:mail", payload)
			j := s.claim(1, "mail")[0]
			want := job.Ready
			if row.dies {
				want = job.Dead
			}
			if got := s.settle(j, job.Nack, 0); j.Attempt != row.earlier+1 || got != want {
				t.Errorf("%s: attempt %d, then %v, want %v", payload, j.Attempt, got, want)
			}
			s.redis.Del(t.Context(), "queues:mail", "queues:mail:notify")
		}
	}
	if residual, err := s.Audit(t.Context(), s.ns); residual != 0 || err != nil {
		t.Errorf("residual %d, %v", residual, err)
	}
}

// Large payloads share a claim, and their calls are bounded by what they read.
func TestAClaimOfManyBytesTakesManyCalls(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	for i := range 8 {
		s.redis.RPush(t.Context(), "queues:mail", fmt.Sprintf(`{"n":%d,"x":"%s","attempts":0}`, i, strings.Repeat("x", 40_000)))
	}
	s.redis.ConfigResetStat(t.Context())
	if got := len(s.claim(6, "mail")); got != 6 {
		t.Errorf("claimed %d, want 6", got)
	}
	if stats := s.redis.Info(t.Context(), "commandstats").Val(); !strings.Contains(stats, "cmdstat_evalsha:calls=3,") {
		t.Errorf("want 3 calls of 2 payloads each, got %s", stats)
	}
}

// What PHP's worker let lapse is counted and goes to the tail, wherever its attempts stand.
func TestWhatPHPLetLapseIsCountedWhereverItsAttemptsStand(t *testing.T) {
	t.Parallel()
	s := open(t, Think2, nil)
	s.redis.ZAdd(t.Context(), "queues:mail:reserved", redis.Z{Score: 1, Member: `{"attempts":3,"job":"J"}`})
	if jobs := s.claim(1, "mail"); len(jobs) != 0 {
		t.Errorf("got %v before it was counted", jobs)
	}
	if jobs := s.claim(1, "mail"); len(jobs) != 1 || string(jobs[0].Payload) != `{"attempts":4,"job":"J"}` || jobs[0].Attempt != 4 {
		t.Errorf("got %+v", jobs)
	}
}
