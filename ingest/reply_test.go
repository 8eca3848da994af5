package ingest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
)

// reply is an answer, its body decoded when it is JSON.
type reply struct {
	status int
	header http.Header
	raw    string
	body   struct {
		Error, Message, Scope, Outcome string
		Accepted, Evicted, Rejected    int
		Depth, Capacity                *int
		Results                        []struct {
			I              int
			Result, Reason string
		}
	}
}

// results formats the results of entries compactly: "5:drop/stale 7:retry/unknown".
func (r *reply) results() string {
	var parts []string
	for _, e := range r.body.Results {
		parts = append(parts, fmt.Sprintf("%d:%s/%s", e.I, e.Result, e.Reason))
	}
	return strings.Join(parts, " ")
}

func readReply(t testing.TB, resp *http.Response) *reply {
	t.Helper()
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read answer: %v", err)
	}
	r := &reply{status: resp.StatusCode, header: resp.Header, raw: string(raw)}
	if len(raw) > 0 {
		if ct := resp.Header.Get("Content-Type"); ct != "application/json" {
			t.Errorf("a body of type %q: %s", ct, raw)
		}
		if err := json.Unmarshal(raw, &r.body); err != nil {
			t.Errorf("body %q: %v", raw, err)
		}
	}
	return r
}

func (r *reply) expect(t testing.TB, status int, code string) {
	t.Helper()
	if r.status != status || r.body.Error != code {
		t.Errorf("got %d %s, want %d %s", r.status, r.raw, status, code)
	}
}
