package spillway

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
)

// PHPJob is a job that workers of a PHP application run, Laravel's or think-queue's. The service
// makes the library's payload of it.
type PHPJob struct {
	Job         string `json:"job"` // class and method, such as App\\Jobs\\Mail@fire
	Data        any    `json:"data,omitempty"`
	Tries       int    `json:"tries,omitempty"`   // deliveries at most; 0: as the worker has it
	Timeout     int    `json:"timeout,omitempty"` // seconds; 0: as the worker has it
	ID          string `json:"id,omitempty"`      // PHP's own; "": a random one
	DisplayName string `json:"display_name,omitempty"`
}

// PHPFacts is what the payload of a job of PHP's says of itself.
type PHPFacts struct {
	ID          string   `json:"id"` // PHP's own, uuid or id
	Job         string   `json:"job"`
	DisplayName string   `json:"display_name"`
	TimeoutMS   int64    `json:"timeout_ms"`
	Backoff     string   `json:"backoff"` // as it stands there
	Tags        []string `json:"tags"`
	// Unique, Batch and Chain: only PHP's own code can end it well. Acked elsewhere, its lock stays
	// until it expires, and its batch or chain does not go on.
	Unique bool `json:"unique"`
	Batch  bool `json:"batch"`
	Chain  bool `json:"chain"`
}

// PublishPHP stores jobs in a queue of a namespace of kind php, all or none. They have no ids before
// they are claimed. Of the options Delay, At, Key and Dedup are for PHP's queues. The token needs the
// right to produce.
func (q *Queues) PublishPHP(ctx context.Context, queue string, jobs []PHPJob,
	o PublishOptions) (Published, error) {
	payloads := make([][]byte, len(jobs))
	for i := range jobs {
		var err error
		if payloads[i], err = json.Marshal(jobs[i]); err != nil {
			return Published{}, &Error{Code: "bad_job",
				Message: fmt.Sprintf("job %d: %v", i, err), is: ErrInvalid}
		}
	}
	return q.PublishPHPPayloads(ctx, queue, payloads, o)
}

// PublishPHPPayloads is PublishPHP of whole payloads, as PHP's library writes them: JSON objects with
// attempts, which are set to those of a job that was never delivered. No other byte changes.
func (q *Queues) PublishPHPPayloads(ctx context.Context, queue string, payloads [][]byte,
	o PublishOptions) (Published, error) {
	contentType, body := "application/octet-stream", []byte(nil)
	if len(payloads) == 1 {
		body = payloads[0] // which may have line breaks
	} else {
		contentType, body = "application/x-ndjson", append(bytes.Join(payloads, []byte{'\n'}), '\n')
	}
	if len(body) <= 1 {
		return Published{}, ErrEmpty
	}
	said, err := q.sendJobs(ctx, queue, contentType, body, o, url.Values{})
	if err == nil && said.Accepted != len(payloads) {
		return Published{}, errForeign
	}
	return Published{Repeated: said.Repeated && o.Key != "", Retried: said.retried}, err
}
