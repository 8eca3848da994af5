package partition

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestDefaultPolicyIsUsable(t *testing.T) {
	t.Parallel()
	if err := DefaultPolicy().Validate(); err != nil {
		t.Fatal(err)
	}
}

func TestPolicyNamesTheFieldThatIsWrong(t *testing.T) {
	t.Parallel()
	for field, changes := range map[string][]func(*Policy){
		"capacity": {func(p *Policy) { p.Capacity = 0 }, func(p *Policy) { p.Capacity = 10_000_001 }},
		"max_age":  {func(p *Policy) { p.MaxAge = 0 }, func(p *Policy) { p.MaxAge = 13 * time.Hour }, func(p *Policy) { p.MaxAge = 99 * time.Millisecond }},
		"batch":    {func(p *Policy) { p.Batch = 0 }, func(p *Policy) { p.Batch = 129 }},
		"linger":   {func(p *Policy) { p.Linger = -1 }, func(p *Policy) { p.Linger = 4 * time.Minute }},
		"delivery": {func(p *Policy) { p.Delivery = "" }, func(p *Policy) { p.Delivery = "exactly-once" }},
		"shards":   {func(p *Policy) { p.Shards = 0 }, func(p *Policy) { p.Shards = 1025 }},

		"max_keys":       {func(p *Policy) { p.MaxKeys = 0 }, func(p *Policy) { p.MaxKeys = 1_000_000_001 }},
		"max_partitions": {func(p *Policy) { p.MaxPartitions = 0 }, func(p *Policy) { p.MaxPartitions = 10_000_001 }, func(p *Policy) { p.MaxPartitions = math.MaxInt }},
		"max_dead":       {func(p *Policy) { p.MaxDead = 0 }, func(p *Policy) { p.MaxDead = 1_000_001 }},
		"max_dead_bytes": {func(p *Policy) { p.MaxDeadBytes = 1<<20 - 1 }, func(p *Policy) { p.MaxDeadBytes = 1<<40 + 1 }},
	} {
		for i, change := range changes {
			p := DefaultPolicy()
			change(&p)
			var wrong *FieldError
			if err := p.Validate(); !errors.As(err, &wrong) || wrong.Field != field || !strings.HasPrefix(err.Error(), field+": ") || wrong.Want == "" {
				t.Errorf("%s, change %d: got %v", field, i, err)
			}
		}
	}
}
