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
		"reply_ttl":  func(p *job.Policy) { p.ReplyTTL = time.Millisecond },
	} {
		p := job.DefaultPolicy()
		set(&p)
		var wrong *partition.FieldError
		if err := p.Validate(); !errors.As(err, &wrong) || wrong.Field != field {
			t.Errorf("got %v, want an error about %s", err, field)
		}
	}
}
