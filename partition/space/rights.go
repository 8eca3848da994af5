package space

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/partition/backend"
)

// checkRights tries on every shard of a home whether the server lets this user run all commands
// of the scripts and the store. Redis does not roll back: a script whose user may run its
// first write and not its second is left half done. The probe runs once by digest and once with
// its text, because the store uses both. Rights that were there may be taken away: again asks for
// those of one shard.
func (s *Space) checkRights(ctx context.Context, h *Home, again bool) error {
	permitted, shards := h.permitted.Load(), h.Shards()
	switch {
	case s.backend.Embedded(), permitted && !again:
		return nil
	case permitted:
		shards = shards[:1]
	}
	var calls []*backend.Call
	for _, sh := range shards {
		keys, args := s.Kind.ProbeOf(sh)
		byText := backend.NewCall(s.Kind.Probe, nil, keys, args...)
		byText.WithText()
		calls = append(calls, backend.NewCall(s.Kind.Probe, nil, keys, args...), byText)
	}
	s.backend.Run(ctx, s.backend.Out, calls)
	missing := backend.Rights{}
	for _, c := range calls {
		if err := missing.Read(c, h.Name, "shards"); err != nil {
			return err
		}
	}
	if len(missing) > 0 {
		h.permitted.Store(false)
		return missing.Error(s.backend.Addrs(), s.Prefix)
	}
	h.permitted.Store(true)
	return nil
}

// explainRights is err, or all rights that the user lacks where it says that one is missing.
func (s *Space) explainRights(ctx context.Context, homes []*Home, err error) error {
	if !backend.Denied(err) || errors.Is(err, backend.ErrIncompatible) {
		return err
	}
	ctx, cancel := s.backend.Probing(context.WithoutCancel(ctx))
	defer cancel()
	var mu sync.Mutex
	missing := backend.Rights{}
	note := func(command string, err error) {
		if backend.Denied(err) {
			mu.Lock()
			defer mu.Unlock()
			missing.Add(command, err.Error())
		}
	}
	note("ping", err) // only to see whether it is the keys
	delete(missing, "ping")
	b := s.backend
	_ = backend.EachMaster(ctx, b.Out, func(ctx context.Context, c *redis.Client) error {
		note("time", c.Do(ctx, "time").Err())
		note("info", c.Do(ctx, "info", "server").Err())
		note("script|load", c.Do(ctx, "script", "load", s.Kind.Probe.Source).Err())
		note("evalsha", c.Do(ctx, "evalsha", strings.Repeat("0", 40), 0).Err())
		note("eval", c.Do(ctx, "eval", "return 0", 0).Err())
		if b.Replicas() > 0 {
			note("wait", c.Do(ctx, "wait", 0, 1).Err())
		}
		return nil
	})
	for _, h := range homes {
		for _, sh := range h.Shards() {
			keys, args := s.Kind.ProbeOf(sh)
			reply, err := b.Out.Eval(ctx, s.Kind.Probe.Source, keys, args...).Slice()
			if backend.Denied(err) && missing["eval"] && !missing["evalsha"] {
				reply, err = b.Out.EvalSha(ctx, s.Kind.Probe.SHA, keys, args...).Slice()
			}
			if !missing["eval"] || !missing["evalsha"] {
				note("eval", err)
			}
			for i := 2; i+1 < len(reply); i += 2 {
				if text := fmt.Sprint(reply[i+1]); backend.IsDenied(text) {
					missing.Add(fmt.Sprint(reply[i]), text)
				}
			}
		}
	}
	if len(missing) == 0 {
		return err
	}
	return missing.Error(b.Addrs(), s.Prefix)
}
