package wire

import (
	"fmt"
	"strconv"

	"github.com/tidwall/gjson"
)

// Result says what happened to one entry that was not stored, or stored with a
// warning. Blank lines of NDJSON have no index.
type Result struct {
	Index       int
	Disposition Disposition
	Reason      Reason
}

// Absent is a Depth or Capacity that an Answer does not have.
const Absent = -1

// Answer is the body of a 200. Accepted + Rejected is the number of entries sent.
type Answer struct {
	Accepted int // stored, those with a warning included
	Evicted  int // older entries that were removed for these
	Rejected int // dropped or to be retried
	Depth    int // entries in the partition after these, or Absent
	Capacity int // entries that the partition keeps, or Absent
	Results  []Result
}

// Append appends the JSON form.
func (a *Answer) Append(dst []byte) []byte {
	dst = appendInt(append(dst, `{"accepted":`...), a.Accepted)
	dst = appendInt(append(dst, `,"evicted":`...), a.Evicted)
	dst = appendInt(append(dst, `,"rejected":`...), a.Rejected)
	if a.Depth != Absent {
		dst = appendInt(append(dst, `,"depth":`...), a.Depth)
	}
	if a.Capacity != Absent {
		dst = appendInt(append(dst, `,"capacity":`...), a.Capacity)
	}
	dst = append(dst, `,"results":[`...)
	for i, r := range a.Results {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = appendInt(append(dst, `{"i":`...), r.Index)
		dst = append(append(dst, `,"result":"`...), r.Disposition...)
		dst = append(append(dst, `","reason":"`...), r.Reason...)
		dst = append(dst, `"}`...)
	}
	return append(dst, `]}`...)
}

// Failure is the body of every answer that is not 2xx.
type Failure struct {
	Code    Code
	Message string // for people; what to change
	Scope   string // what a 429 limits: "namespace" or "token"; empty leaves it out
	Unknown bool   // the entries may have been stored: "outcome":"unknown"
	Field   string // what of the body is wrong; empty leaves it and Value out
	Value   string // what it is
}

// Append appends the JSON form.
func (f *Failure) Append(dst []byte) []byte {
	dst = append(append(dst, `{"error":"`...), f.Code...)
	dst = gjson.AppendJSONString(append(dst, `","message":`...), f.Message)
	if f.Scope != "" {
		dst = gjson.AppendJSONString(append(dst, `,"scope":`...), f.Scope)
	}
	if f.Unknown {
		dst = append(dst, `,"outcome":"unknown"`...)
	}
	if f.Field != "" {
		dst = gjson.AppendJSONString(append(dst, `,"field":`...), f.Field)
		dst = gjson.AppendJSONString(append(dst, `,"value":`...), f.Value)
	}
	return append(dst, '}')
}

// Stats is the body of GET /v1/{namespace}/{partition}.
type Stats struct {
	Namespace, Partition string
	Depth, Capacity      int
	Leased               bool
	OldestAgeMillis      int64
	// Counted since the partition was last empty.
	Accepted, Evicted, Expired int64
}

// Append appends the JSON form. Names have nothing to escape.
func (s *Stats) Append(dst []byte) []byte {
	return fmt.Appendf(dst, `{"namespace":"%s","partition":"%s","depth":%d,"capacity":%d,"leased":%t,"oldest_age_ms":%d,`+
		`"since_birth":{"accepted":%d,"evicted":%d,"expired":%d}}`, s.Namespace, s.Partition, s.Depth, s.Capacity, s.Leased,
		s.OldestAgeMillis, s.Accepted, s.Evicted, s.Expired)
}

func appendInt(dst []byte, n int) []byte { return strconv.AppendInt(dst, int64(n), 10) }
