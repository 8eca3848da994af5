package phpmodel

import (
	"bytes"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

var payloads = flag.Int("payloads", 20000, "random payloads whose attempts the scripts count")

// counter is a script that counts one attempt of each argument.
func counter(tb testing.TB) *redis.Script {
	includes := scripttest.Includes(tb, "../..", "..")
	var text strings.Builder
	for _, name := range []string{"whole", "int", "closing", "attempts", "append", "write_attempts"} {
		text.WriteString(includes[name])
	}
	text.WriteString(`
local out = {}
for i, p in ipairs(ARGV) do
  local a = attempts(p, 0)
  out[i] = a and write_attempts(p, a, a.value + 1) or ''
end
return out`)
	return redis.NewScript(text.String())
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
	if err != nil || !object.MatchString(p) || !json.Valid([]byte(p)) {
		return "" // PHP cannot read it: a dead letter, or its worker says so
	}
	if got == "" {
		if cut.MatchString(p) {
			return ""
		}
		return "it is no JSON object"
	}
	if f, _ := attemptsOf(p); true {
		if want, _ := f.write(p, f.or(0)+1); got != want {
			return "the model makes it " + want
		}
	}
	after, err := fieldsOf(got)
	if err != nil {
		return "it is JSON no more: " + err.Error()
	}
	was := int64(0)
	if raw, err := json.Marshal(before["attempts"]); err == nil && before["attempts"] != nil {
		was = max(0, wholeOf(raw))
	}
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

func TestOnlyTheDigitsOfAttemptsChange(t *testing.T) {
	t.Parallel()
	script, payloads := counter(t), int(length(int64(*payloads), 10))
	for name, server := range map[string]struct {
		addr string
		n    int
	}{"redis": {redistest.Shared(t), payloads}, "miniredis": {miniredis.RunT(t).Addr(), payloads / 20}} {
		t.Run(name, func(t *testing.T) {
			c := redis.NewClient(&redis.Options{Addr: server.addr, DisableIdentity: true})
			t.Cleanup(func() { _ = c.Close() })
			r := random{rand.New(rand.NewSource(1))}
			for done := 0; done < server.n && !t.Failed(); done += 100 {
				args := make([]any, 100)
				for i := range args {
					args[i] = r.payload()
				}
				got, err := script.Run(context.Background(), c, nil, args...).StringSlice()
				if err != nil {
					t.Fatal(err)
				}
				for i, p := range args {
					if why := wrongly(p.(string), got[i]); why != "" {
						t.Errorf("%s\n  %q\n  %q", why, p, got[i])
					}
				}
			}
		})
	}
}

// A payload can name attempts in any number of places; the time must not grow with their square.
func TestTheTimeToCountGrowsWithTheSizeOnly(t *testing.T) {
	t.Parallel()
	c := redistest.SharedClient(t)
	script := counter(t)
	nested := strings.Repeat(`{"attempts":1},`, 60_000)
	for what, p := range map[string]string{
		"nested":      `{"attempts":4,"data":[` + nested + `0],"id":"x"}`,
		"in a string": `{"attempts":4,"s":"` + strings.Repeat(`\"attempts\":1,`, 60_000) + `","id":"x"}`,
		"duplicates":  `{` + strings.Repeat(`"attempts":1,`, 60_000) + `"attempts":4,"id":"x"}`,
		"braces":      `{"attempts":4,"s":"` + strings.Repeat(`}   `, 250_000) + `","id":"x"}`,
		"space":       `{"attempts":4,"id":"x"` + strings.Repeat(" ", 1_000_000) + `}` + strings.Repeat(" ", 1_000_000),
	} {
		began := time.Now()
		got, err := script.Run(context.Background(), c, nil, p).StringSlice()
		if err != nil || strings.Count(got[0], `"attempts":5`) != 1 {
			t.Errorf("%s: %.90q, %v", what, got, err)
		}
		if took := time.Since(began); took > 20*time.Second {
			t.Errorf("%s: 1 MiB took %v", what, took)
		} else {
			t.Logf("%s: %v", what, took)
		}
	}
}

func FuzzAttempts(f *testing.F) {
	r := random{rand.New(rand.NewSource(2))}
	for range 50 {
		f.Add(r.payload())
	}
	for _, p := range []string{"", "{}", "[]", "{\"a\":1}\x00", `{"attempts":007}`, `{"attempts":0x10}`, `{"attempts":nan}`, `{"attempts":1}}`, `{x,"attempts":1}`, `{"attempts":1e999}`,
		`{"n":1e999,"attempts":1,"id":"x"}`} {
		f.Add(p)
	}
	script, c := counter(f), redistest.SharedClient(f) // a server for each process that fuzzes
	f.Fuzz(func(t *testing.T, p string) {
		got, err := script.Run(context.Background(), c, nil, p).StringSlice()
		if err != nil {
			t.Fatalf("%q: %v", p, err)
		}
		if why := wrongly(p, got[0]); why != "" && strings.Count(p, "[")+strings.Count(p, "{") < 900 {
			t.Errorf("%s\n  %q\n  %q", why, p, got[0])
		}
	})
}
