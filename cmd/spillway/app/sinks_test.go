package app

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/spillway-io/spillway/cmd/spillway/config"
	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/drain/sink/null"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestSinksOfAnotherModuleAreCheckedBeforeTheyAreAdded(t *testing.T) {
	t.Parallel()
	before := len(sinkTypes)
	for want, more := range map[string]SinkType{
		"scheme null: already":  {"null:", []string{"null"}, null.New},
		"lacks its form":        {"", []string{"mine"}, null.New},
		`"mine:" lacks`:         {"mine:", nil, null.New},
		"schemes or its opener": {"mine:", []string{"mine"}, nil},
		"scheme two: already":   {"two:", []string{"two", "two"}, null.New},
	} {
		if err := addSinks([]SinkType{more}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
	if len(sinkTypes) != before {
		t.Error("a sink with an error was added")
	}
}

// forgetful warns when it is opened.
type forgetful struct {
	sink.Sink
	log    func(string)
	maxAge time.Duration
}

func (s *forgetful) WarnTo(log func(string), maxAge time.Duration) { s.log, s.maxAge = log, maxAge }

func (s *forgetful) Open(ctx context.Context) error {
	s.log(fmt.Sprintf("forgets before %s", s.maxAge))
	return s.Sink.Open(ctx)
}

func TestWhatASinkWarnsOfIsInTheLogAndInTheOnlineCheck(t *testing.T) {
	t.Parallel()
	c, err := config.Default()
	if err != nil {
		t.Fatal(err)
	}
	c.Namespaces = map[string]config.Namespace{"kart": c.Default}
	ns := c.Namespaces["kart"]
	ns.Sink, ns.MaxAge = "forgetful://user:s3cret@host", 7*time.Second
	c.Namespaces["kart"] = ns
	registry := sink.Registry{"forgetful": func(u *url.URL) (sink.Sink, error) {
		inner, err := null.New(&url.URL{Scheme: "null"})
		return &forgetful{Sink: inner}, err
	}}
	core, logs := observer.New(zap.DebugLevel)
	sinks, err := newSinks(c, registry, nil, prometheus.NewRegistry(), zap.New(core))
	if err != nil {
		t.Fatal(err)
	}
	if err := sinks["kart"].Open(t.Context()); err != nil {
		t.Fatal(err)
	}
	seen := logs.FilterMessage("forgets before 7s").FilterField(zap.String("namespace", "kart")).FilterField(zap.String("sink", "forgetful://…@host"))
	if seen.Len() != 1 || seen.All()[0].Level != zap.WarnLevel {
		t.Errorf("got %v, want one warning", logs.All())
	}
	c.Redis = redistest.Start(t).URL()
	if warnings, err := checkOnline(t.Context(), c, registry); err != nil || !slices.Contains(warnings, "namespace kart: forgets before 7s") {
		t.Errorf("got %q, %v", warnings, err)
	}
}
