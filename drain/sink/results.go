package sink

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spillway-io/spillway/partition"
)

// MaxResults is the longest answer that ReadResults reads, in bytes: 4 KiB an entry,
// 512 KiB in all. The form needs some 80 bytes; the rest is for what receivers add,
// such as a message.
const MaxResults = partition.MaxBatch * (4 << 10)

// ReadResults reads what the answer of a receiver that accepted a batch did not take:
//
//	{"results":[{"i":5,"result":"retry"},{"i":77,"result":"drop","reason":"too_large"}]}
//
// i counts the lines of the batch from 0. "drop" is Permanent, "retry" comes
// again, "ok" and "warning" mean success, as in Spillway's own produce answer.
// What decides, in this order:
//
//	an empty answer, or one that does    accepted, all of it
//	not begin with {
//	longer than MaxResults, or not one   an error: results may be in what is
//	whole JSON object                    missing
//	no results in it, or null            accepted, all of it
//	results that are not a list of       an error: who is meant is not known
//	the form above
//
// An error is retryable and means the whole batch: the receiver sees it again,
// and nothing that it may have rejected counts as delivered. Its text goes after "but".
func ReadResults(answer []byte, entries int) (failed *BatchError, err error) {
	text := bytes.TrimLeft(bytes.TrimPrefix(answer, []byte("\ufeff")), " \t\r\n")
	long := len(answer) > MaxResults
	switch {
	case long && (len(text) == 0 || text[0] == '{'):
		return nil, fmt.Errorf("with more than %d bytes", MaxResults)
	case len(text) == 0 || text[0] != '{':
		return nil, nil
	}
	body := struct{ Results resultList }{resultList{named: make([]bool, entries)}}
	switch err := json.Unmarshal(text, &body); {
	case errors.Is(err, errResults):
		return nil, errResults
	case err != nil:
		return nil, errors.New("with a { that begins no whole JSON object")
	case len(body.Results.failed.Failed) == 0:
		return nil, nil
	}
	return &body.Results.failed, nil
}

var errResults = errors.New(`with results that are not a list of {"i":LINE,"result":"drop|retry|ok|warning"}`)

// resultList is the value of results. It decodes one result at a time, so that
// it takes no more memory than the answer; a key given twice adds up.
type resultList struct {
	failed BatchError
	named  []bool // by line: failed already
}

func (l *resultList) UnmarshalJSON(list []byte) error {
	if string(list) == "null" {
		return nil
	}
	decoder := json.NewDecoder(bytes.NewReader(list))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('[') {
		return errResults
	}
	for decoder.More() {
		var r struct {
			I      *int
			Result string
			Reason any
		}
		if decoder.Decode(&r) != nil || r.I == nil || *r.I < 0 || *r.I >= len(l.named) {
			return errResults
		}
		reason, _ := r.Reason.(string)
		var err error
		switch r.Result {
		case "ok", "warning":
			continue
		case "retry":
			err = fmt.Errorf("receiver asks for a retry%s", reasonText(reason))
		case "drop":
			err = fmt.Errorf("receiver dropped it%s", reasonText(reason))
			if reasonText(reason) == "" {
				err = WithDetail(err, reason)
			}
			err = Permanent(err)
		default:
			return errResults
		}
		if !l.named[*r.I] {
			l.named[*r.I] = true
			l.failed.Fail(0, *r.I, err)
		}
	}
	return nil
}

// reasonText lets only codes through, such as too_large: free text could repeat
// the payload, and errors are logged. The dead letter has all of it.
func reasonText(reason string) string {
	if reason == "" || len(reason) > 64 {
		return ""
	}
	for _, c := range []byte(reason) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '_' && c != '-' && c != '.' {
			return ""
		}
	}
	return ": " + reason
}
