package elasticsearch

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/drain/sink"
)

// maxAnswer is how much is read of an answer without items, in bytes.
const maxAnswer = 64 << 10

// answerBound is for an answer with n items, of payloads of that many bytes in all.
// Filtered, an item has 30 bytes, or 90 when it failed, and its reason, which quotes the
// payload. A kilobyte leaves room for a proxy that drops the filter.
func answerBound(n, size int) int64 { return maxAnswer + int64(n)<<10 + 2*int64(size) }

// busy is how long a cluster that rejects for lack of room is left alone; it does not
// say so itself.
const busy = time.Second

// outcome says what an answer means. The kind is the type of the cluster's error.
//
//	2xx with items               by item: see verdict
//	2xx without, or unreadable   retryable: what is there answers 409 the next time
//	413                          Permanent: too large, the drain divides it
//	400 with a kind              Permanent; the drain bisects, for one entry may be to blame
//	429, 503                     retryable in a second
//	3xx, 401, 404, 405           ErrNotConnected: Open waits until it is mended
//	all else                     retryable; 401 and 403 Unsent
func (s *Sink) outcome(answer sink.Answer, bound int64, at []position) error {
	status, text := answer.Status, answer.Body
	var kind, reason string
	if status/100 != 2 && sink.ValidJSON(text) {
		kind, reason = gjson.GetBytes(text, "error.type").String(), gjson.GetBytes(text, "error.reason").String()
	}
	err := sink.WithDetail(fmt.Errorf("bulk to %s: answered %d%s", s.host, status, sink.ErrorCode(kind)), reason)
	switch {
	case status/100 == 2:
		failed, unreadable := verdicts(text, bound, at)
		if unreadable != nil {
			return fmt.Errorf("%w, but %w", err, unreadable)
		}
		if failed != nil {
			return failed
		}
		return nil
	case status == http.StatusRequestEntityTooLarge, status == http.StatusBadRequest && kind != "":
		return sink.Permanent(err)
	case status == http.StatusTooManyRequests, status == http.StatusServiceUnavailable:
		return sink.Throttle(err, busy)
	case needsOperator(status):
		err = fmt.Errorf("%w: %w", sink.ErrNotConnected, err)
	}
	if forbids(int64(status)) {
		return sink.Unsent(err)
	}
	return err
}

// forbids reports whether a status is about a right or a password: nothing was looked at.
func forbids(status int64) bool {
	return status == http.StatusUnauthorized || status == http.StatusForbidden
}

// needsOperator reports whether a status is about the host, user or key: what Open finds,
// too. 403 is not, because a _bulk of nothing asks for no right on an index.
func needsOperator(status int) bool {
	switch status {
	case http.StatusUnauthorized, http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusSwitchingProtocols:
		return true
	}
	return status/100 == 3
}

// verdicts reads the items of an answer, which are in the order of the actions.
func verdicts(answer []byte, bound int64, at []position) (failed *sink.BatchError, err error) {
	switch {
	case int64(len(answer)) > bound:
		return nil, fmt.Errorf("with more than %d bytes", bound)
	case !sink.ValidJSON(answer):
		return nil, errors.New("with no JSON")
	}
	switch found := gjson.GetManyBytes(answer, "errors", "items"); {
	case found[0].Type == gjson.False:
		return nil, nil // all of it
	case found[0].Type != gjson.True || !found[1].IsArray():
		return nil, errors.New("not as a _bulk does")
	default:
		failed = &sink.BatchError{}
		n := 0
		found[1].ForEach(func(_, item gjson.Result) bool {
			result := item.Get("create")
			if n < len(at) {
				if err := verdict(result.Get("status").Int(), result.Get("error.type").String(),
					result.Get("error.reason").String()); err != nil {
					failed.Fail(at[n].batch, at[n].entry, err)
				}
			}
			n++
			return true
		})
		if n != len(at) {
			return nil, fmt.Errorf("with %d items for %d entries", n, len(at))
		}
	}
	if len(failed.Failed) == 0 {
		return nil, nil // repeats, which the cluster calls errors
	}
	return failed, nil
}

// operatorKinds are errors with status 400 that are about the index or the cluster.
var operatorKinds = map[string]bool{
	"index_closed_exception": true, "invalid_index_name_exception": true, "cluster_block_exception": true, "validation_exception": true,
}

// noShards begins the reason of the limit of shards, which some clusters call an
// illegal_argument_exception, as they do an entry's.
const noShards = "Validation Failed: 1: this action would add"

// verdict says what the item of one entry means. The reason quotes the payload, so it is
// the error's detail.
//
//	2xx                          created
//	409                          created by an earlier attempt
//	429                          retryable in a second
//	400 and other 4xx            Permanent: the mapping does not fit the entry, or a pipeline rejected it
//	401, 403, 404, 408, 5xx,     retryable: about the cluster, the index or a right, which is Unsent
//	an operator's 400, all else
func verdict(status int64, kind, reason string) error {
	if status/100 == 2 || status == http.StatusConflict {
		return nil
	}
	err := sink.WithDetail(fmt.Errorf("create answered %d%s", status, sink.ErrorCode(kind)), reason)
	switch {
	case status == http.StatusTooManyRequests:
		return sink.Throttle(err, busy)
	case status/100 != 4 || operatorKinds[kind] || strings.HasPrefix(reason, noShards):
		return err
	}
	switch {
	case forbids(status):
		return sink.Unsent(err)
	case status == http.StatusNotFound, status == http.StatusRequestTimeout:
		return err
	}
	return sink.Permanent(err)
}
