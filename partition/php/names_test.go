package php

import (
	"context"
	"fmt"
	"testing"
	"time"
)

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
