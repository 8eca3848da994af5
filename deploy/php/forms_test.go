//go:build php

package php

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// fields are the names of a payload's fields, in their order.
func fields(t *testing.T, payload string) []string {
	t.Helper()
	dec := json.NewDecoder(strings.NewReader(payload))
	if _, err := dec.Token(); err != nil {
		t.Fatalf("%s: %v", payload, err)
	}
	var names []string
	for dec.More() {
		name, err := dec.Token()
		must(t, err)
		names = append(names, fmt.Sprint(name))
		var skipped json.RawMessage
		must(t, dec.Decode(&skipped))
	}
	return names
}

// Spillway builds payloads of these forms itself, and counts attempts in them.
func TestTheLibraryPushesTheFormOfItsFlavor(t *testing.T) {
	const laravelHead = "uuid displayName job maxTries maxExceptions failOnTimeout backoff timeout "
	forms := map[string]string{
		"think3 Note":     "job maxTries timeout data id attempts",
		"think3 Command":  "job maxTries timeout timeoutAt data id attempts",
		"think2 Note":     "job data id attempts",
		"think2 Command":  "job data id attempts",
		"laravel Note":    laravelHead + "data id attempts",
		"laravel Command": laravelHead + "retryUntil data id attempts",
	}
	// Later versions of Laravel and Horizon have more.
	later := []string{"createdAt", "delay", "type", "tags", "silenced", "pushedAt"}
	onEach(t, func(t *testing.T, p *project) {
		for _, job := range []pushed{note("delete"), command(map[string]any{"tries": 4, "timeout": 9})} {
			p.push(t, job)
			payload, err := p.redis.LPop(context.Background(), p.key).Result()
			must(t, err)
			got := slices.DeleteFunc(fields(t, payload), func(name string) bool { return slices.Contains(later, name) })
			if want := forms[p.app+" "+job.Class]; strings.Join(got, " ") != want {
				t.Errorf("%s has the fields %v, want %s", job.Class, got, want)
			}
			var v struct {
				ID       string
				Attempts json.RawMessage
				MaxTries *int
				Timeout  *int
			}
			must(t, json.Unmarshal([]byte(payload), &v))
			if len(v.ID) != 32 || string(v.Attempts) != fmt.Sprint(p.first) {
				t.Errorf("id and attempts are %q and %s, want 32 bytes and %d", v.ID, v.Attempts, p.first)
			}
			if p.app != "think2" && job.Class == "Command" && (v.MaxTries == nil || *v.MaxTries != 4 || v.Timeout == nil || *v.Timeout != 9) {
				t.Errorf("maxTries and timeout of the object are not those of %s", payload)
			}
		}
	}, think3, think2, laravel)
}

func TestTheLibraryPushesToTheKeysOfItsFlavor(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		ctx := context.Background()
		late := note("delete")
		late.Delay = 100
		began := time.Now().Unix()
		p.push(t, note("delete"), note("delete"), late)
		ready, notified := p.redis.LLen(ctx, p.key).Val(), p.redis.LLen(ctx, p.key+":notify").Val()
		if ready != 2 || notified != int64(2*p.notify) {
			t.Errorf("%d ready and %d notifications, want 2 and %d", ready, notified, 2*p.notify)
		}
		delayed := p.redis.ZRangeWithScores(ctx, p.key+":delayed", 0, -1).Val()
		if len(delayed) != 1 || int64(delayed[0].Score) < began+100 || int64(delayed[0].Score) > time.Now().Unix()+100 {
			t.Errorf("delayed are %v, want one in 100 s", delayed)
		}
	}, think3, think2, laravel)
}

// The payload of 1 MiB has every character that JSON escapes, and numbers that floats do not hold.
func TestTextNumbersAndSizeReachTheJobUnchanged(t *testing.T) {
	onEach(t, func(t *testing.T, p *project) {
		text := "grüße 你 😀 \u2028 \" \\ / \x01" + strings.Repeat("x", 1<<20)
		data := map[string]any{"acts": []string{"delete"}, "text": text, "big": json.Number("9007199254740993"), "most": json.Number("9223372036854775807"),
			"small": -0.5, "empty": map[string]any{}, "list": []int{}}
		p.push(t, pushed{Class: "Note", Data: data})
		d := p.claim(t)
		if !strings.Contains(d.payload, "9223372036854775807") || len(d.payload) < 1<<20 {
			t.Fatal("the library itself pushed something else")
		}
		c := p.start(t, 1)
		if a := c.run(t, d); a.Do != "delete" {
			t.Fatalf("got %+v: %s", a, a.error())
		}
		c.end(t)
		var sent struct{ Data json.RawMessage }
		must(t, json.Unmarshal([]byte(d.payload), &sent))
		for _, s := range slices.DeleteFunc(p.seen(t), func(s seen) bool { return !ran(s) }) {
			if s.Body != sum([]byte(d.payload)) || s.Data != sum(p.asPHP(t, sent.Data)) || s.Queue != p.queue {
				t.Errorf("the job of %s saw %+v, want the payload of %s", p.queue, s, sum([]byte(d.payload)))
			}
		}
	})
}

// asPHP is a JSON text as PHP writes it after it read it.
func (p *project) asPHP(t *testing.T, text []byte) []byte {
	t.Helper()
	cmd := p.php(t, "-r", `echo json_encode(json_decode(stream_get_contents(STDIN), true));`)
	cmd.Stdin = bytes.NewReader(text)
	out, err := cmd.Output()
	must(t, err)
	return out
}
