package clienttest

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/bitleak/lmstfy/client"

	"github.com/spillway-io/spillway/lua/redistest"
)

// adminDo sends a request to the admin port and returns its status.
func (s *server) adminDo(method, path, body string) int {
	s.t.Helper()
	status, _, _ := s.do(s.admin, method, path, body, http.Header{})
	return status
}

func TestARevokedTokenEndsItsOpenPolls(t *testing.T) {
	t.Parallel()
	s := startSpillway(t)
	c := s.client()
	ended := make(chan error, 4)
	for range cap(ended) {
		go func() {
			_, err := c.Consume("q", 60, 30)
			ended <- err
		}()
	}
	redistest.Until(t, patience, "four polls wait", func() bool {
		_, metrics, _ := s.do(s.admin, "GET", "/metrics", "", http.Header{})
		return strings.Contains(metrics, `spillway_jobs_polls{pool="default"} 4`)
	})
	began := time.Now()
	if got := s.adminDo("DELETE", "/token/ns/"+s.token, ""); got != 204 {
		t.Fatalf("delete the token: %d", got)
	}
	for range cap(ended) {
		if err := <-ended; err == nil || !strings.Contains(err.Error(), "invalid token") {
			t.Errorf("got %v, want invalid token", err)
		}
	}
	if took := time.Since(began); took > patience {
		t.Errorf("the polls ended after %v", took)
	}
	if _, err := c.Publish("q", nil, 0, 1, 0); err == nil || !strings.Contains(err.Error(), "invalid token") {
		t.Errorf("publish: got %v, want invalid token", err)
	}
}

func TestALimitMadeByTheAdminPortHolds(t *testing.T) {
	t.Parallel()
	s := startSpillway(t)
	c := s.client()
	if got := s.adminDo("POST", "/token/ns/"+s.token+"/limit", `{"read":2,"write":3,"interval":3600}`); got != 201 {
		t.Fatalf("make the limit: %d", got)
	}
	limited := func(err error) bool { return err != nil && strings.Contains(err.Error(), "429") }
	published := 0
	redistest.Until(t, patience, "the limit is in use", func() bool {
		_, err := c.Publish("q", nil, 0, 1, 0)
		if err == nil {
			published++
		}
		return limited(err)
	})
	if published < 3 {
		t.Errorf("%d were published, want 3 under the limit", published)
	}
	for range 5 { // what brings nothing costs nothing
		if j, err := c.Consume("none", 60, 0); j != nil || err != nil {
			t.Errorf("got %v, %v", j, err)
		}
	}
	for i := range 3 {
		j, err := c.Consume("q", 60, 0)
		if i < 2 && (j == nil || err != nil) || i == 2 && !limited(err) {
			t.Errorf("%d: got %v, %v", i, j, err)
		}
	}
}

func TestRequestAndReply(t *testing.T) {
	t.Parallel()
	s := startSpillway(t)
	c := s.client()
	go func() {
		if j, err := c.Consume("work", 60, 20); err == nil && j != nil {
			_, _ = c.Publish(j.ID, append([]byte("answer to "), j.Data...), 60, 1, 0)
			_ = c.Ack("work", j.ID)
		}
	}()
	id, err := c.PublishJob(&client.JobRequest{Queue: "work", Data: []byte("question"), TTL: 60, Tries: 2})
	if err != nil {
		t.Fatal(err)
	}
	j, err := c.Consume(id, 60, 20)
	if err != nil || j == nil || string(j.Data) != "answer to question" {
		t.Fatalf("got %v, %v", j, err)
	}
}
