// Package clienttest plays lmstfy's own Go client, and requests by hand, against Spillway
// and against a real lmstfy: both answer alike. It is a module of its own, so that nobody who
// uses Spillway gets lmstfy's dependencies.
package clienttest

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bitleak/lmstfy/client"

	"github.com/spillway-io/spillway/lua/redistest"
)

// session is a client and what it has called.
type session struct {
	*client.LmstfyClient
	t      testing.TB
	called map[string]bool
}

func (s *server) client() *session {
	return &session{client.NewLmstfyClient("127.0.0.1", s.port(), "ns", s.token), s.t, map[string]bool{}}
}

// use notes calls; the test fails for any that nobody notes.
func (c *session) use(names ...string) {
	for _, name := range names {
		c.called[name] = true
	}
}

// must fails the test for an error of the client, also for one that is a nil *APIError.
func (c *session) must(err any) {
	c.t.Helper()
	if v := reflect.ValueOf(err); err != nil && !v.IsNil() {
		c.t.Fatalf("got %v", err)
	}
}

// want checks a job.
func (c *session) want(j *client.Job, err error, id, data string, remain int64) {
	c.t.Helper()
	switch {
	case err != nil:
		c.t.Fatal(err)
	case j == nil:
		c.t.Fatalf("no job, want %s", id)
	case j.ID != id || string(j.Data) != data || j.RemainTries != remain || j.Namespace != "ns":
		c.t.Fatalf("got %+v with %q, want %s with %q, %d tries left", j, j.Data, id, data, remain)
	}
}

func (c *session) noJob(j *client.Job, err error) {
	c.t.Helper()
	if j != nil || err != nil {
		c.t.Fatalf("got %+v, %v, want no job and no error", j, err)
	}
}

func TestEveryCallOfTheClientWorks(t *testing.T) {
	t.Parallel()
	for _, start := range []func(testing.TB) *server{startSpillway, startLmstfy} {
		s := start(t)
		t.Run(s.name, func(t *testing.T) {
			t.Parallel()
			c := s.client()
			c.t = t
			c.ConfigRetry(3, 50)
			c.use("ConfigRetry")
			c.publishes()
			c.consumes(s.name == "lmstfy")
			c.peeks()
			c.republishes()
			c.deadLetters()
			c.fails(s)
			of := reflect.TypeFor[*client.LmstfyClient]()
			for i := range of.NumMethod() {
				if name := of.Method(i).Name; !c.called[name] {
					t.Errorf("nothing calls %s", name)
				}
			}
		})
	}
}

func (c *session) publishes() {
	ctx := c.t.Context()
	first, err := c.Publish("p", []byte("one"), 0, 2, 0)
	c.must(err)
	second, err := c.PublishWithContext(ctx, "p", []byte{0xff, 0}, 60, 1, 0)
	c.must(err)
	third, err := c.PublishJob(&client.JobRequest{Queue: "p", Data: []byte("three"), TTL: 60, Tries: 1, Attributes: map[string]string{"Colour": "Red"}})
	c.must(err)
	fourth, err := c.PublishJobWithContext(ctx, &client.JobRequest{Queue: "p", TTL: 60, Tries: 1})
	c.must(err)
	ids, err := c.BatchPublish("p", []interface{}{map[string]int{"n": 1}, "text"}, 60, 1, 0)
	c.must(err)
	more, err := c.BatchPublishWithContext(ctx, "p", []interface{}{13579}, 60, 1, 0)
	c.must(err)
	size, e := c.QueueSize("p")
	c.must(e)
	if size != 7 {
		c.t.Errorf("size %d, want 7", size)
	}
	want := []struct{ id, data string }{{first, "one"}, {second, "\xff\x00"}, {third, "three"}, {fourth, ""}, {ids[0], `{"n":1}`}, {ids[1], `"text"`}, {more[0], "13579"}}
	for i, w := range want {
		j, err := c.Consume("p", 60, 0)
		c.want(j, err, w.id, w.data, int64(map[bool]int{true: 1, false: 0}[i == 0]))
		if i == 2 && j.Attributes["colour"] != "Red" {
			c.t.Errorf("attributes %v", j.Attributes)
		}
		if ttl := j.TTL; i == 0 && ttl != 0 || i > 0 && (ttl < 1 || ttl > 60) {
			c.t.Errorf("%s lives %d s", w.data, ttl)
		}
		c.must(c.Ack("p", j.ID))
	}
	c.noJob(c.Consume("p", 60, 0))
	c.must(c.Ack("p", first)) // once more
	c.use("Publish", "PublishWithContext", "PublishJob", "PublishJobWithContext", "BatchPublish", "BatchPublishWithContext", "QueueSize", "Consume", "Ack")
}

// consumes calls each form of Consume. swallows says that the server may hand a job to a
// client that went away.
func (c *session) consumes(swallows bool) {
	ctx := c.t.Context()
	publish := func(queue string) string {
		id, err := c.Publish(queue, []byte(queue), 60, 2, 0)
		c.must(err)
		return id
	}
	for _, call := range []struct {
		name string
		call func() (*client.Job, error)
	}{
		{"ConsumeWithContext", func() (*client.Job, error) { return c.ConsumeWithContext(ctx, "high", 60, 0) }},
		{"ConsumeFromQueues", func() (*client.Job, error) { return c.ConsumeFromQueues(60, 1, "high", "low") }},
		{"ConsumeFromQueuesWithContext", func() (*client.Job, error) { return c.ConsumeFromQueuesWithContext(ctx, 60, 1, "high", "low") }},
		{"ConsumeWithFreezeTries", func() (*client.Job, error) { return c.ConsumeWithFreezeTries("high", 60, 0) }},
		{"ConsumeWithFreezeTriesWithContext", func() (*client.Job, error) { return c.ConsumeWithFreezeTriesWithContext(ctx, "high", 60, 0) }},
		{"ConsumeFromQueuesWithFreezeTries", func() (*client.Job, error) { return c.ConsumeFromQueuesWithFreezeTries(60, 1, "high", "low") }},
		{"ConsumeFromQueuesWithFreezeTriesWithContext", func() (*client.Job, error) {
			return c.ConsumeFromQueuesWithFreezeTriesWithContext(ctx, 60, 1, "high", "low")
		}},
	} {
		low, high := publish("low"), publish("high")
		j, err := call.call()
		c.want(j, err, high, "high", 1)
		c.must(c.Ack("high", high))
		c.must(c.Ack("low", low))
		c.use(call.name)
		for { // lmstfy keeps the reference of an acked job until someone meets it
			if j, err := c.Consume("low", 60, 0); j == nil && err == nil {
				break
			}
		}
	}
	for _, call := range []struct {
		name string
		call func() ([]*client.Job, error)
	}{
		{"BatchConsume", func() ([]*client.Job, error) { return c.BatchConsume([]string{"b"}, 3, 60, 0) }},
		{"BatchConsumeWithContext", func() ([]*client.Job, error) { return c.BatchConsumeWithContext(ctx, []string{"b"}, 100, 60, 1) }},
		{"BatchConsumeWithFreezeTries", func() ([]*client.Job, error) { return c.BatchConsumeWithFreezeTries([]string{"b"}, 3, 60, 0) }},
		{"BatchConsumeWithFreezeTriesWithContext", func() ([]*client.Job, error) {
			return c.BatchConsumeWithFreezeTriesWithContext(ctx, []string{"b"}, 2, 60, 0)
		}},
	} {
		ids := []string{publish("b"), publish("b")}
		jobs, err := call.call()
		c.must(err)
		var got []string
		for _, j := range jobs {
			got = append(got, j.ID)
			c.must(c.Ack("b", j.ID))
		}
		if !slices.Equal(got, ids) {
			c.t.Errorf("%s: got %v, want %v", call.name, got, ids)
		}
		c.use(call.name)
	}
	// A poll gets what is published while it waits; one whose client went away gets nothing.
	gone, cancel := context.WithTimeout(ctx, 200*time.Millisecond)
	defer cancel()
	if j, err := c.ConsumeWithContext(gone, "later", 60, 30); j != nil || err == nil {
		c.t.Errorf("got %v, %v, want an error of the context", j, err)
	}
	found := make(chan *client.Job, 1)
	go func() {
		j, _ := c.Consume("later", 60, 30)
		found <- j
	}()
	id := publish("later")
	if swallows {
		c.must(c.Ack("later", id))
		id = publish("later")
	}
	c.want(<-found, nil, id, "later", 1)
}

func (c *session) peeks() {
	if j, err := c.PeekQueue("none"); j != nil || err != nil {
		c.t.Errorf("got %v, %v, want neither", j, err)
	}
	if j, err := c.PeekJob("none", "none"); j != nil || err != nil {
		c.t.Errorf("got %v, %v, want neither", j, err)
	}
	id, err := c.Publish("peek", []byte("x"), 60, 3, 0)
	c.must(err)
	j, e := c.PeekQueue("peek")
	c.must(e)
	c.want(j, nil, id, "x", 3)
	j, e = c.PeekJob("peek", id)
	c.must(e)
	c.want(j, nil, id, "x", 0)
	c.use("PeekQueue", "PeekJob")
}

func (c *session) republishes() {
	ctx := c.t.Context()
	id, err := c.Publish("r", []byte("x"), 60, 2, 0)
	c.must(err)
	for name, call := range map[string]func(*client.Job) (string, error){
		"RePublish":            func(j *client.Job) (string, error) { return c.RePublish(j, 60, 2, 0) },
		"RePublishWithContext": func(j *client.Job) (string, error) { return c.RePublishWithContext(ctx, j, 60, 2, 0) },
		"RePublishJob": func(j *client.Job) (string, error) {
			return c.RePublishJob(&client.JobRequest{Queue: "r", ID: j.ID, Data: j.Data, TTL: 60, Tries: 2})
		},
		"RePublishJobWithContext": func(j *client.Job) (string, error) {
			return c.RePublishJobWithContext(ctx, &client.JobRequest{Queue: "r", ID: j.ID, Data: j.Data, TTL: 60, Tries: 2})
		},
	} {
		j, err := c.Consume("r", 60, 0)
		c.want(j, err, id, "x", 1)
		next, err := call(j)
		c.must(err)
		if old, e := c.PeekJob("r", id); old != nil || e != nil {
			c.t.Errorf("%s: the job before is %v, %v, want gone", name, old, e)
		}
		id = next
		c.use(name)
	}
}

func (c *session) deadLetters() {
	for range 3 {
		_, err := c.Publish("d", []byte("x"), 60, 1, 0)
		c.must(err)
	}
	jobs, err := c.BatchConsume([]string{"d"}, 3, 1, 0)
	c.must(err)
	var size int
	var head string
	redistest.Until(c.t, patience, "three dead letters", func() bool {
		var e *client.APIError
		size, head, e = c.PeekDeadLetter("d")
		c.must(e)
		return size == 3
	})
	if !slices.ContainsFunc(jobs, func(j *client.Job) bool { return j.ID == head }) {
		c.t.Errorf("the head is %q, want one of %v", head, jobs)
	}
	n, e := c.RespawnDeadLetter("d", 1, 60)
	c.must(e)
	j, err := c.Consume("d", 60, 0)
	c.want(j, err, head, "x", 0)
	c.must(c.DeleteDeadLetter("d", 1))
	more, e := c.RespawnDeadLetter("d", 100, 0)
	c.must(e)
	if n != 1 || more != 1 {
		c.t.Errorf("respawned %d and %d, want 1 and 1", n, more)
	}
	c.use("PeekDeadLetter", "RespawnDeadLetter", "DeleteDeadLetter")
}

func (c *session) fails(s *server) {
	c.use("EnableErrorOnNilJob")
	strict := client.NewLmstfyWithClient(&http.Client{Timeout: patience}, "127.0.0.1", s.port(), "ns", s.token)
	strict.EnableErrorOnNilJob()
	if j, err := strict.Consume("none", 60, 0); j != nil || err == nil {
		c.t.Errorf("got %v, %v, want an error", j, err)
	}
	var api *client.APIError
	_, err := strict.Publish("f", nil, 1, 1, 2)
	if !errors.As(err, &api) || api.Type != client.ResponseErr || !strings.Contains(api.Reason, "ttl is shorter than delay") || api.RequestID == "" {
		c.t.Errorf("got %+v, want the reason and a request id", err)
	}
	wrong := client.NewLmstfyClient("127.0.0.1", s.port(), "ns", "wrong")
	if _, err := wrong.Publish("f", nil, 0, 1, 0); !errors.As(err, &api) || !strings.Contains(api.Reason, "[401]invalid token") {
		c.t.Errorf("got %v, want [401]invalid token", err)
	}
	if e := wrong.Ack("f", "x"); e == nil || !strings.Contains(e.Reason, "invalid token") {
		c.t.Errorf("got %v, want invalid token", e)
	}
}
