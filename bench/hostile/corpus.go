package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// A category is a part of the corpus, and how its rows are checked.
type category struct {
	name  string
	about string
	count int
	rows  []row // of the data port; other inputs have a form of their own
	plays []situation
	// run checks every row and reports those that differ.
	run func(ctx context.Context, r *setup, report func(difference)) error
}

// A difference is a row whose answer is not the one it expects.
type difference struct {
	row, sent string
	got, want string
}

// corpus is every category, in the order they run.
func corpus() []category {
	return []category{
		onData("framing", "both lengths, wrong lengths, codings, chunks, folds, bare line ends; whatever hides a request", framing, plain),
		onData("protocols", "other versions, other protocols, malformed request lines", protocols, plain),
		onData("methods", "methods that no route has, overrides", methods, plain),
		onData("paths", "escapes, dots, slashes, hosts and fragments in the target; the admin port's paths", paths, plain),
		onData("headers", "malformed, too many, too large; times, keys, discards, preferences, web pages", headers, plain),
		onData("bodies", "too large by length, by chunks, by expectation; empty; types; lines", bodies, plain),
		{"slow", "stalls and trickles in every place; an answer in time and an end without a reset", len(slow), nil, nil, runSlow},
		onData("encodings", "bombs, doubled and unknown encodings, corrupt and lying streams", encodings, plain),
		onData("json", "grammar, depth, size, types of fields, envelopes and items", jsons, plain),
		onData("names", "partitions with braces, patterns, controls, look-alikes, of other types", names, plain),
		onData("sdks", "keys, events, batches and forms on the routes of other vendors' SDKs", sdks, plain),
		onData("adapters", "bodies, keys and batches with bad items on the routes of OpenTelemetry and further SDKs", slices.Concat(adapters, damaged()), plain),
		onData("sdks without keys", "the same routes where no write key opens anything", locked, guarded),
		onData("cardinality", "more partitions than a namespace may have", cardinality, plain),
		{"admin", "names that were re-pointed, other origins, methods, writes, names and numbers in queries, the command line", len(admins), nil,
			nil, func(ctx context.Context, r *setup, report func(difference)) error {
				return runAdmin(ctx, r, r.plain, admins, report)
			}},
		onData("auth", "tokens missing, wrong, another's, in every wrong place, on every route", auth, guarded),
		onData("quotas", "entries and new partitions beyond what a token may use up", quotas, guarded),
		{"admin token", "an admin port that asks for a token, and gets others, or one of a lower role", len(guardedAdmins), nil, nil,
			func(ctx context.Context, r *setup, report func(difference)) error {
				return runAdmin(ctx, r, r.guarded, guardedAdmins, report)
			}},
		onData("jobs", "names, ids, numbers, durations, bodies, tokens and web pages on the routes of queues; what is queued behind a claim", nativeJobs, queues),
		onData("jobs of lmstfy", "the same on the routes of lmstfy's clients", lmstfyJobs, queues),
		{"tls", "plain HTTP, old versions, certificates missing, expired, of others", len(sealed), nil, nil, runSealed},
		{"sink urls", "what a configuration may not send to: link-local in every spelling, schemes, files", len(invalidURLs), nil, nil, runInvalidURLs},
		{"settings", "values and options that no service could work with", len(invalidSettings), nil, nil, runSettings},
		{"sink answers", "redirects, endless, slow, huge and malformed answers of a webhook", len(targets), nil, nil, runTargets},
		situations("announced bodies", "connections that announce much and send little, under a budget of memory", announced),
		situations("big entries", "entries of 1 MiB: what they cost their neighbours, and that they arrive", sizes),
		situations("ages", "outages, slow Writes, failing neighbours and nobody at all: what expires under a healthy sink", ages),
		situations("partial answers", "receivers that take a part, say so at length, or not to the end; at-most-once", answersInPart),
		situations("signals", "readers that go away, and SIGHUP", signals),
		situations("damage", "fields of a partition's hash that somebody deletes, and values of another type under our keys", damage),
		onData("secrets and logs", "secrets in every place of a request; line ends and terminal sequences", secrets, plain),
	}
}

// onData is a category of the data port. Its rows run one by one, so that the
// server's own count of requests tells whether it saw one that nobody sent.
func onData(name, about string, rows []row, to func(*setup) *server) category {
	return category{name, about, len(rows), rows, nil, func(ctx context.Context, r *setup, report func(difference)) error {
		srv := to(r)
		before, err := srv.metric(ctx, "spillway_ingest_requests_total")
		if err != nil {
			return err
		}
		for _, row := range rows {
			want := strings.Split(row.want, " | ")
			s := exchange(srv.data, stall(row.send), want)
			r.heard(srv, s)
			s.compare(row.name, row.send, want, row.connEnd, report)
			after, err := srv.metric(ctx, "spillway_ingest_requests_total")
			if err != nil {
				return fmt.Errorf("after %s: %w", row.name, err)
			}
			// A row of probes aside, what was answered is what was counted.
			expected := 0
			for _, a := range s.answers {
				if a != "none" && a != "100" {
					expected++
				}
			}
			if s.connEnd == kept && s.problem == "" {
				expected++ // the probe
			}
			if served := int(after - before); served != expected {
				report(difference{row.name, row.send, fmt.Sprintf("%d requests served", served), fmt.Sprint(expected)})
			}
			before = after
		}
		return nil
	}}
}

// compare reports a row whose answers or connection end otherwise than expected.
func (s *seen) compare(name, sent string, want []string, f connEnd, report func(difference)) {
	if slices.Equal(s.answers, want) && s.connEnd == f && s.problem == "" {
		return
	}
	report(difference{name, sent, s.String(), strings.Join(want, " | ") + ", " + f.String()})
}

// heard keeps what the checks at the end need.
func (r *setup) heard(by *server, s *seen) {
	by.acked += s.accepted
	r.said = append(r.said, s.raw...)
}

func plain(r *setup) *server   { return r.plain }
func guarded(r *setup) *server { return r.guarded }
func queues(r *setup) *server  { return r.queues }

// runSlow runs all slow clients at once: one by one they would take a minute.
func runSlow(_ context.Context, r *setup, report func(difference)) error {
	var mu sync.Mutex
	var all sync.WaitGroup
	for _, row := range slow {
		all.Go(func() {
			var sent strings.Builder
			for _, p := range row.pieces {
				sent.WriteString(p.text)
			}
			want := strings.Split(row.want, " | ")
			s := exchange(r.impatient.data, row.pieces, want)
			mu.Lock()
			defer mu.Unlock()
			r.heard(r.impatient, s)
			s.compare(row.name, sent.String(), want, row.connEnd, report)
		})
	}
	all.Wait()
	return nil
}

// runAdmin also checks that the requests changed nothing.
func runAdmin(ctx context.Context, r *setup, srv *server, rows []row, report func(difference)) error {
	before, err := srv.ledger(ctx, true)
	if err != nil {
		return err
	}
	for _, row := range rows {
		want := strings.Split(row.want, " | ")
		s := exchange(srv.admin, stall(row.send), want)
		r.said = append(r.said, s.raw...)
		s.compare(row.name, row.send, want, row.connEnd, report)
	}
	after, err := srv.ledger(ctx, true)
	// What was buffered before may have been delivered meanwhile.
	after.Delivered, before.Delivered = after.Delivered+after.Buffered, before.Delivered+before.Buffered
	after.Buffered, before.Buffered = 0, 0
	if err == nil && after != before {
		report(difference{"the ledger afterwards", "", fmt.Sprintf("%+v", after), fmt.Sprintf("%+v", before)})
	}
	return err
}

func runInvalidURLs(ctx context.Context, r *setup, report func(difference)) error {
	for _, u := range invalidURLs {
		if got := u.check(ctx, r); got != "" {
			report(difference{u.name, u.url, got, "exit 2, " + u.says})
		}
	}
	return nil
}

func runTargets(ctx context.Context, r *setup, report func(difference)) error {
	for _, t := range targets {
		want := []string{ok}
		s := exchange(r.sinks.data, stall(aim("/v1/"+t.namespace()+"/p")), want)
		s.compare(t.name, t.url, want, kept, report)
		r.heard(r.sinks, s)
	}
	for _, t := range targets {
		if got := t.check(ctx, r); got != "" {
			report(difference{t.name, t.url, got, t.ends.String()})
		}
	}
	return nil
}
