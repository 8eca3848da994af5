package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
)

// A invalidSetting is one that no service could work with.
type invalidSetting struct {
	name  string
	flags string
	says  string // part of the reason
}

var invalidSettings = []invalidSetting{
	{"more partitions than a number holds twice", "--max-partitions 9223372036854775807", "max_partitions"},
	{"no time to read a request", "--read-timeout 1ns", "read_timeout"},
	{"a microsecond to read a request", "--read-timeout 1us", "read_timeout"},
	{"one port for both listeners", "--listen 127.0.0.1:9000 --admin-listen 127.0.0.1:9000", "listen"},
	{"one port under two names", "--listen 127.0.0.1:9000 --admin-listen localhost:9000", "listen"},
	{"a read timeout in the URL of Redis", "--redis redis://127.0.0.1:6379?read_timeout=1s", "read_timeout"},
	{"a pool's size in the URL of Redis", "--redis redis://127.0.0.1:6379?pool_size=1", "pool_size"},
	{"retries in the URL of Redis, which would duplicate entries", "--redis redis://127.0.0.1:6379?max_retries=5", "max_retries"},
	{"a protocol in the URL of Redis", "--redis redis://127.0.0.1:6379?protocol=2", "protocol"},
	{"an option of Redis that nobody knows", "--redis redis://127.0.0.1:6379?nonsense=5", "redis"},
	{"an entry beyond a body", "--max-entry 1GiB", "max_entry"},
}

// check asks `spillway config check`, which opens nothing.
func (u invalidSetting) check(ctx context.Context, r *setup) string {
	return r.configRejects(ctx, u.says, strings.Fields(u.flags)...)
}

// configRejects is "" when config check rejects these flags as it should.
func (r *setup) configRejects(ctx context.Context, says string, flags ...string) string {
	out, err := exec.CommandContext(ctx, r.bin, append([]string{"config", "check"}, flags...)...).CombinedOutput()
	code := 0
	if exit, ok := err.(*exec.ExitError); ok {
		code = exit.ExitCode()
	} else if err != nil {
		return err.Error()
	}
	if text := string(out); code != 2 || !strings.Contains(text, says) || strings.Contains(text, "goroutine ") {
		return fmt.Sprintf("exit %d, %s", code, text)
	}
	return ""
}

func runSettings(ctx context.Context, r *setup, report func(difference)) error {
	for _, u := range invalidSettings {
		if got := u.check(ctx, r); got != "" {
			report(difference{u.name, u.flags, got, "exit 2, " + u.says})
		}
	}
	return nil
}
