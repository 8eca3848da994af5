package php

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestTimesThatNoRightClockWroteAreAWarning(t *testing.T) {
	t.Parallel()
	const longer, created = "or its retry_after is longer", "says that it was created"
	for name, tt := range map[string]struct {
		reserved int64   // s from now
		fraction float64 // of a second: a lease of ours
		created  int64   // s from now
		never    bool    // retry_after
		want     string
	}{
		"right":                     {reserved: 90},
		"about right":               {reserved: 92, created: 2},
		"ahead":                     {reserved: 97, want: longer},
		"far ahead":                 {reserved: 3690, created: 3600, want: "more than retry_after, 1m30s"},
		"ours may be of any length": {reserved: 3600, fraction: 0.123},
		"no retry_after":            {reserved: 60, never: true, want: longer},
		"created later than now":    {reserved: 90, created: 60, want: created},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t, Laravel, func(p *Policy) {
				if tt.never {
					p.RetryAfter = 0
				}
			})
			now := s.redis.Time(t.Context()).Val().Unix()
			s.redis.ZAdd(t.Context(), "queues:mail:reserved", redis.Z{Score: float64(now+tt.reserved) + tt.fraction, Member: "a"},
				redis.Z{Score: float64(now - 9), Member: "b"})
			s.redis.RPush(t.Context(), "queues:mail", `{"uuid":"u","displayName":"A","createdAt":`+strconv.FormatInt(now+tt.created, 10)+`}`)
			warnings, err := s.oddities(t.Context(), s.named("shop"))
			if err != nil || len(warnings) > 0 != (tt.want != "") || !strings.Contains(strings.Join(warnings, "\n"), tt.want) {
				t.Errorf("got %q, %v, want %q", warnings, err, tt.want)
			}
		})
	}
	t.Run("beside a key of another type", func(t *testing.T) {
		t.Parallel()
		s := open(t, Think3, nil)
		s.redis.Set(t.Context(), "{queues:mail}:reserved", "x", 0)
		if warnings, err := s.oddities(t.Context(), s.named("shop")); err != nil || len(warnings) > 0 {
			t.Errorf("got %q, %v", warnings, err)
		}
	})
}

func TestNamesAreFoundBesideALargeCacheThoughEachLookIsShort(t *testing.T) {
	t.Parallel()
	s := open(t, Laravel, nil)
	pipe := s.redis.Pipeline()
	for i := range 30_000 {
		pipe.Set(t.Context(), fmt.Sprint("cache:", i), "", 0)
	}
	pipe.RPush(t.Context(), "queues:bulk1", "{}")
	if _, err := pipe.Exec(t.Context()); err != nil {
		t.Fatal(err)
	}
	look := func() ([]string, error) {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		return s.Queues(ctx, s.ns)
	}
	for range 200 {
		if names, err := look(); err == nil {
			if fmt.Sprint(names) != "[bulk1 mail other]" {
				t.Errorf("names %v", names)
			}
			return
		}
	}
	t.Error("no look has ended")
}
