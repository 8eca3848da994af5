package job_test

import (
	"errors"
	"testing"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
)

func TestValidateNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	if err := job.DefaultPolicy().Validate(); err != nil {
		t.Fatal(err)
	}
	for field, set := range map[string]func(*job.Policy){
		"shards":     func(p *job.Policy) { p.Shards = 1025 },
		"spread":     func(p *job.Policy) { p.Shards, p.Spread = 2, map[string]int{"a b": 2} },
		"spread.q":   func(p *job.Policy) { p.Shards, p.Spread = 2, map[string]int{"q": 3} },
		"max_jobs":   func(p *job.Policy) { p.MaxJobs = 0 },
		"max_queues": func(p *job.Policy) { p.MaxQueues = 10_000_001 },
		"max_traces": func(p *job.Policy) { p.MaxTraces = -1 },
		"queues[0].concurrency": func(p *job.Policy) {
			p.Rules = []job.Rule{{Match: "a", Concurrency: 10_001}}
		},
		"queues[1].concurrency": func(p *job.Policy) {
			p.Shards, p.Spread = 2, map[string]int{"bulk": 2}
			p.Rules = []job.Rule{{Match: "a", Concurrency: 1}, {Match: "b*", Concurrency: 1}}
		},
		"queues[0].keep_trace": func(p *job.Policy) {
			p.Rules = []job.Rule{{Match: "a", KeepTrace: job.Span(721 * time.Hour)}}
		},
		"queues[0].ttr": func(p *job.Policy) { p.Rules = []job.Rule{{Match: "a", TTR: job.Span(time.Millisecond)}} },
		"queues[1].delay": func(p *job.Policy) {
			p.Rules = []job.Rule{{Match: "a", Tries: 1}, {Match: "b", Delay: job.Span(721 * time.Hour)}}
		},
		"reply_ttl": func(p *job.Policy) { p.ReplyTTL = time.Millisecond },
	} {
		p := job.DefaultPolicy()
		set(&p)
		var wrong *partition.FieldError
		if err := p.Validate(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}

// A rate on every queue must not hold up the follow-ups, which the mover claims from a queue of
// their own.
func TestNoPatternMatchesTheOutbox(t *testing.T) {
	t.Parallel()
	for pattern, want := range map[job.Pattern]string{"*": "mail", "_*": "", "*out": "out"} {
		got := ""
		for _, queue := range []string{"_out", "mail", "out"} {
			if pattern.Matches(queue) {
				got = queue
				break
			}
		}
		if got != want {
			t.Errorf("%s matches %q first, want %q", pattern, got, want)
		}
	}
}

func TestASpanIsReadAsItIsWritten(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{"24h": "24h", "90m": "1h30m", "1m": "1m", "90s": "1m30s", "": "", "100h": "100h", "10m0s": "10m"} {
		var d job.Span
		if err := d.UnmarshalText([]byte(text)); err != nil || d.String() != want {
			t.Errorf("%q: %v, %v", text, d, err)
		}
	}
	for _, text := range []string{"0s", "24", "a day", "1d"} {
		if err := new(job.Span).UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is taken", text)
		}
	}
}
