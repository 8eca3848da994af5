package php

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"strings"
	"testing"
)

func TestTheClassOfAJobIsWhatPHPRuns(t *testing.T) {
	t.Parallel()
	for payload, want := range map[string]string{
		`{"job":"App\\Jobs\\Mail@fire","data":{}}`:                                                                   `App\Jobs\Mail`,
		`{"job":"Evil@fire","data":{"command":"x","commandName":"App\\Jobs\\Mail"}}`:                                 `Evil`,
		`{"job":"Illuminate\\Queue\\CallQueuedHandler@call","data":{"command":"x","commandName":"App\\Jobs\\Mail"}}`: `App\Jobs\Mail`,
		`{"job":"think\\queue\\CallQueuedHandler@call","data":{"commandName":"A","command":"x"}}`:                    `A`,
		`{"job":"think\\queue\\CallQueuedHandler@call","data":{"commandName":"A"}}`:                                  `think\queue\CallQueuedHandler`,
		`{"job":"A","j\u006fb":"Evil@fire"}`:                                                                         `Evil`,
	} {
		if got := Read([]byte(payload)).Class; got != want {
			t.Errorf("%s: class %s, want %s", payload, got, want)
		}
	}
}

func TestWhatAClaimShowsOfAPayloadIsBounded(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	long := strings.Repeat("<é", 100_000)
	s.publish("mail", `{"job":"A","displayName":"`+long+`","id":"`+long+`","tags":["`+long+`","b"],"attempts":0}`)
	if jobs := s.claim(1, "mail"); len(jobs) != 1 || len(jobs[0].PHP) > 16<<10 || len(jobs[0].Payload) < len(long) {
		t.Errorf("%d jobs, %d bytes beside the payload", len(jobs), len(jobs[0].PHP))
	}
}

// payloads are the seeds of the fuzz targets.
var payloads = []string{
	`{"job":"App\\Jobs\\Mail@fire","data":{"a":[]}}`,
	`{"job":"a","data":1,"tries":3,"timeout":30,"id":"x","displayName":"y"}`,
	` {"attempts":7,"job":"a","data":{"attempts":9}} `,
	`{"job":"a","attempts":1,"job":"b","att\u0065mpts":{"c":[1]}}`,
	`{"attempts" : "x" ,"job":"a","data":{"command":"O:1:\"A\":0:{}","commandName":"A"}}`,
	`{"job":"a","attempts":null,"data":"\ud83d\ude00","createdAt":1e300,"pushedAt":"NaN","tags":["a",1,{}]}`,
	`{"j\u006fb":"a","d\u0061ta":{"comm\u0061nd":"x","command":""},"attempts":0}`,
	`{"job":"a","maxTries":99999999999999999999,"timeout":9223372036854775807,"backoff":[1,2]}`,
	`{"job":"a","attempts":12345678901234567,"data":[{"x":-0.0}]}` + "\n",
	`[]`, ``, `{`, "{\"job\":\"\xff\"}",
}

// FuzzPayload holds that a whole payload changes in its attempts alone, that what is built holds the
// data as they were given, and that no message is taken that encoding/json would read otherwise.
func FuzzPayload(f *testing.F) {
	for _, p := range payloads {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, message []byte) {
		before := bytes.Clone(message)
		for _, flavor := range Flavors {
			p, err := flavor.Payload(message, 1_795_000_000_000)
			if !bytes.Equal(message, before) {
				t.Fatalf("the message was changed to %q", message)
			}
			if err != nil {
				var wrong *PayloadError
				if !errors.As(err, &wrong) || wrong.Why == "" {
					t.Fatalf("error %v, want a *PayloadError", err)
				}
				continue
			}
			asked, got := fields(t, message), fields(t, p)
			if name, ok := text(asked["job"]); !ok || name == "" || string(got["job"]) == "" {
				t.Fatalf("taken without a job: %q", message)
			}
			if string(got["attempts"]) != strconv.FormatInt(flavor.first(), 10) {
				t.Fatalf("attempts %s in %q", got["attempts"], p)
			}
			attempts, whole := asked["attempts"]
			if !whole {
				if data, given := asked["data"]; given && !bytes.Equal(data, got["data"]) {
					t.Fatalf("data %s, want %s", got["data"], data)
				}
				continue
			}
			if first := strconv.FormatInt(flavor.first(), 10); !isOneReplacement(message, p, string(attempts), first) {
				t.Fatalf("%q became %q: more than attempts %s has changed", message, p, attempts)
			}
		}
	})
}

// FuzzRead holds that what a payload says of itself is what encoding/json reads, of two fields of a
// name the last, and that data.command is never overlooked.
func FuzzRead(f *testing.F) {
	for _, p := range payloads {
		f.Add([]byte(p))
	}
	f.Fuzz(func(t *testing.T, payload []byte) {
		facts := Read(payload)
		if facts.created < 0 || facts.created > maxCreated {
			t.Fatalf("created %d", facts.created)
		}
		if facts.TimeoutMS < 0 || facts.tries < -1 || len(facts.Tags) > maxTags {
			t.Fatalf("facts %+v", facts)
		}
		if _, err := json.Marshal(facts); err != nil {
			t.Fatal(err)
		}
		if check(payload) != "" {
			return
		}
		all := fields(t, payload)
		if name, _ := text(all["job"]); facts.Job != name {
			t.Fatalf("job %q, want %q", facts.Job, name)
		}
		var data map[string]json.RawMessage
		if json.Unmarshal(all["data"], &data) != nil {
			return
		}
		if command, ok := text(data["command"]); ok && command != "" && !facts.Raw {
			t.Fatalf("data.command of %q was overlooked", payload)
		}
	})
}

// fields are those of an object; of two of a name the last.
func fields(t *testing.T, object []byte) map[string]json.RawMessage {
	t.Helper()
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		t.Fatalf("%q: %v", object, err)
	}
	return all
}

func text(raw json.RawMessage) (s string, ok bool) {
	ok = len(raw) > 0 && raw[0] == '"' && json.Unmarshal(raw, &s) == nil
	return s, ok
}

// isOneReplacement reports whether after is before with one occurrence of old replaced.
func isOneReplacement(before, after []byte, old, other string) bool {
	for at := 0; at+len(old) <= len(before); at++ {
		if string(before[at:at+len(old)]) == old &&
			string(before[:at])+other+string(before[at+len(old):]) == string(after) {
			return true
		}
	}
	return false
}

func TestAKeyIsOfOneQueue(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		flavor  Flavor
		cluster bool
		key     string
		want    string
	}{
		{Laravel, false, "queues:mail", "mail"},
		{Laravel, false, "queues:mail:delayed", "mail"},
		{Laravel, false, "queues:mail:reserved", "mail"},
		{Laravel, false, "queues:mail:reserved:delayed", "mail:reserved"}, // of PHP's queue mail:reserved
		{Laravel, false, "queues:mail:notify", ""},
		{Laravel, true, "queues:{mail}:delayed", "mail"},
		{Laravel, true, "queues:mail", ""},
		{Think3, false, "{queues:mail}:reserved", "mail"},
		{Think2, false, "cache:mail", ""},
	} {
		if got := tt.flavor.queueOf(tt.key, tt.cluster); got != tt.want {
			t.Errorf("%s, cluster %t: %s is of %q, want %q", tt.flavor, tt.cluster, tt.key, got, tt.want)
		}
	}
}
