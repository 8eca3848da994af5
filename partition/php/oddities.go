package php

import (
	"context"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// What oddities reads of a queue, and how far a clock may be off.
const (
	lookedAt   = 20 // payloads
	latest     = 8  // reservations
	clockSlack = 3 * time.Second
)

// oddities are warnings about what lies in the queues that have a name: payloads of another library,
// which its workers would not run, and times of a clock that is not Redis's.
func (s *Store) oddities(ctx context.Context, n *namespace) (warnings []string, err error) {
	for _, r := range n.Rules {
		if r.Match.Wild() {
			continue
		}
		queue := string(r.Match)
		k := n.keys(queue)
		pipe := s.backend.Background.Pipeline()
		heads := pipe.LRange(ctx, k.ready, 0, lookedAt-1)
		reserved := pipe.ZRevRangeWithScores(ctx, k.reserved, 0, latest-1)
		clock := pipe.Time(ctx)
		_, err := pipe.Exec(ctx)
		switch {
		case backend.IsWrongType(heads.Err()):
			warnings = append(warnings, fmt.Sprintf("namespace %s: %s is no list, so queue %s cannot be used", n.Name, k.ready, queue))
			continue
		case err != nil && !backend.IsWrongType(err):
			return warnings, backend.Classify(err)
		}
		for _, p := range heads.Val() {
			laravel := strings.Contains(p, `"displayName"`) && strings.Contains(p, `"uuid"`)
			if think := strings.Contains(p, `"job"`) && !strings.Contains(p, `"displayName"`); laravel && n.Flavor != Laravel ||
				think && n.Flavor == Laravel {
				warnings = append(warnings, fmt.Sprintf("namespace %s: payloads in queue %s do not look like those of flavor %s", n.Name, queue, n.Flavor))
				break
			}
		}
		warnings = append(warnings, n.clockOddities(queue, clock.Val().UnixMilli(), heads.Val(),
			reserved.Val())...)
	}
	return warnings, nil
}

// clockOddities are warnings about times that PHP wrote: no reservation of its ends later than
// retry_after from now, and no payload was created later than now. A clock that is behind leaves no
// such trace.
func (n *namespace) clockOddities(queue string, now int64, payloads []string,
	reserved []redis.Z) (warnings []string) {
	var left, created time.Duration
	for _, z := range reserved {
		if z.Score == math.Trunc(z.Score) { // ours have a fraction
			left = max(left, time.Duration(int64(z.Score)*1000-now)*time.Millisecond)
		}
	}
	for _, p := range payloads {
		created = max(created, time.Duration(Read([]byte(p)).created-now)*time.Millisecond)
	}
	if over := left - n.RetryAfter; over > clockSlack {
		warnings = append(warnings, fmt.Sprintf("namespace %s: PHP reserved a job of queue %s for another %s, which is %s more than retry_after, %s: "+
			"the clock of a PHP host is ahead of Redis's, or its retry_after is longer", n.Name, queue, left.Round(time.Second), over.Round(time.Second), n.RetryAfter))
	}
	if created > clockSlack {
		warnings = append(warnings, fmt.Sprintf("namespace %s: a job of queue %s says that it was created %s from now: the clock of a PHP host is so far ahead of Redis's",
			n.Name, queue, created.Round(time.Second)))
	}
	return warnings
}
