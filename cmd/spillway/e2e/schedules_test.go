package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spillway-io/spillway/lua/redistest"
)

// do sends a request to the data port; status 0: no answer.
func (s *server) do(method, path, body string) (status int, text string) {
	req, err := http.NewRequest(method, "http://"+s.data+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(raw)
}

// scheduleState is a schedule as the data port shows it.
type scheduleState struct {
	Name, State string
	Next        []time.Time
	Ticks       map[string]int64
}

// Three processes fire 120 schedules of 1 to 3 s, and are killed, one after the other. Each tick is published once, none
// early, and none is missing but those that the accounts name.
func TestSchedulesOfKilledProcessesFireEachTickOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	config := filepath.Join(t.TempDir(), "spillway.yaml")
	text := fmt.Sprintf("redis: %s\npools: {default: {volatile: true}}\nnamespaces:\n  mail: {kind: queue, shards: 2}\n", redis.URL())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	var procs []*server
	for range 3 {
		procs = append(procs, serve(t, "--config", config).ready(200))
	}
	const schedules = 120
	queue := func(i int) string { return fmt.Sprintf("/v1/mail/q%d", i%4) }
	for i := range schedules {
		eventually(t, "a schedule is put", func() bool {
			status, text := procs[i%3].do("PUT", fmt.Sprintf("%s/schedules/s%d", queue(i), i), fmt.Sprintf(`{"every":"%ds"}`, 1+i%3))
			if status != 201 && status != 200 && status != 503 { // 503: the machine stood still; 200: it was put then
				t.Fatal(status, text)
			}
			return status != 503
		})
	}
	kills := 12
	if testing.Short() {
		kills = 3
	}
	for range kills {
		time.Sleep(time.Duration(200+rand.IntN(600)) * time.Millisecond) // what the processes do meanwhile is what is tested
		i := rand.IntN(3)
		procs[i].kill()
		procs[i] = serve(t, "--config", config)
	}
	last := procs[0].ready(200)
	for i := 2; i < schedules; i += 3 { // those of 3 s, the last to fire
		eventually(t, "each has fired", func() bool {
			_, text := last.do("GET", fmt.Sprintf("%s/schedules/s%d", queue(i), i), "")
			var s scheduleState
			return json.Unmarshal([]byte(text), &s) == nil && s.Ticks["fired"] > 0
		})
	}
	for i := range schedules {
		if status, text := last.do("POST", fmt.Sprintf("%s/schedules/s%d/pause", queue(i), i), ""); status != 200 {
			t.Fatal(status, text)
		}
	}
	published := map[string]int64{} // by schedule
	seen := map[string]bool{}
	for i := range 4 {
		for {
			_, text := last.do("POST", queue(i)+"/claim?count=1000&ttr=1h", "")
			var answer struct {
				Jobs []struct {
					Published  int64 `json:"published_ms"`
					Attributes map[string]string
				}
			}
			if err := json.Unmarshal([]byte(text), &answer); err != nil {
				t.Fatal(err, text)
			}
			if len(answer.Jobs) == 0 {
				break
			}
			for _, j := range answer.Jobs {
				key := j.Attributes["schedule"] + " " + j.Attributes["tick"]
				tick, err := time.Parse(time.RFC3339, j.Attributes["tick"])
				if err != nil || seen[key] || j.Published < tick.UnixMilli() {
					t.Errorf("%s: again %v, published at %d: %v", key, seen[key], j.Published, err)
				}
				seen[key] = true
				published[j.Attributes["schedule"]]++
			}
		}
	}
	for i := range schedules {
		_, text := last.do("GET", fmt.Sprintf("%s/schedules/s%d", queue(i), i), "")
		var s scheduleState
		if err := json.Unmarshal([]byte(text), &s); err != nil {
			t.Fatal(err, text)
		}
		sum := s.Ticks["fired"] + s.Ticks["missed"] + s.Ticks["overlapped"] + s.Ticks["paused"] + s.Ticks["superseded"] + s.Ticks["waiting"]
		if s.Ticks["total"] != sum || s.Ticks["fired"] != published[s.Name] || s.Ticks["fired"] < 1 || s.Ticks["missed"] != 0 {
			t.Errorf("%s: %d published, %v", s.Name, published[s.Name], s.Ticks)
		}
	}
	for _, p := range procs {
		p.ready(200)
	}
}

// Redis's clock was ahead and went back, while a process ran, or while none did.
func TestAScheduleComesByAClockThatWentBack(t *testing.T) {
	t.Parallel()
	for _, restarted := range []bool{false, true} {
		t.Run(fmt.Sprintf("restarted %t", restarted), func(t *testing.T) {
			t.Parallel()
			redis := redistest.StartWithClock(t)
			config := filepath.Join(t.TempDir(), "spillway.yaml")
			text := fmt.Sprintf("redis: %s\npools: {default: {volatile: true}}\nnamespaces:\n  mail: {kind: queue}\n", redis.URL())
			if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			s := serve(t, "--config", config).ready(200)
			get := func() (shown scheduleState) {
				_, text := s.do("GET", "/v1/mail/q/schedules/minutely", "")
				_ = json.Unmarshal([]byte(text), &shown)
				return shown
			}
			eventually(t, "the schedule is put", func() bool {
				status, _ := s.do("PUT", "/v1/mail/q/schedules/minutely", `{"cron":"* * * * *"}`)
				return status == 201 || status == 200
			})
			eventually(t, "it fires by the clock that is ahead", func() bool {
				redis.Advance(time.Minute)
				return get().Ticks["fired"] > 0
			})
			redis.Advance(5 * time.Hour)
			eventually(t, "it goes on five hours later", func() bool {
				next := get().Next
				return len(next) > 0 && next[0].After(time.Now().Add(5*time.Hour))
			})
			if restarted {
				s.kill()
			}
			redis.Advance(-5 * time.Hour)
			if restarted {
				s = serve(t, "--config", config).ready(200)
			}
			eventually(t, "it comes by the clock as it is", func() bool {
				next := get().Next
				return len(next) > 0 && next[0].Before(time.Now().Add(time.Hour))
			})
			if s.terminate(); !strings.Contains(s.log.String(), "the clock of Redis went back: schedules count from it") {
				t.Error("the log does not say so")
			}
		})
	}
}
