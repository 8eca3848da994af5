package push

import (
	"bytes"
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
)

// An answer is what a target said when it took a job. The sink may tell it when nobody waits
// for it any more.
type answer struct {
	most   int // bytes of body that are kept
	mu     sync.Mutex
	status int
	body   []byte // JSON, short enough for a result
}

// answered is sink.Job.Answered.
func (a *answer) answered(status int, body []byte) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.status = status
	if body = bytes.TrimSpace(body); len(body) > 0 && len(body) <= a.most && sink.ValidJSON(body) {
		a.body = bytes.Clone(body)
	}
}

// code is the status of the answer; 0: there was none, or it was an error.
func (a *answer) code() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.status
}

// result is that of the work, for the follow-up of the job; nil: none.
func (a *answer) result() []byte {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.body
}

// deferred is how long the job stays leased, by a rule that lets it be deferred for otherwise;
// 0: it is done.
func (a *answer) deferred(otherwise time.Duration) time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	if otherwise == 0 || a.status != http.StatusAccepted {
		return 0
	}
	var said struct {
		Defer string `json:"defer"`
	}
	if json.Unmarshal(a.body, &said) == nil {
		if d, err := time.ParseDuration(said.Defer); err == nil && d >= minDefer && d <= maxDefer {
			return d
		}
	}
	return otherwise
}
