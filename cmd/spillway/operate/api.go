package operate

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// The answers of the admin API, as the commands read them. Rates are float64 here: as
// float32 they would round to another decimal.

func pauseText(p *admin.Pause, now int64) string {
	text := fmt.Sprintf("paused (by %s, %s ago)", escape(p.By), since(now-p.SinceMS))
	if p.Reason != "" {
		text += ": " + escape(p.Reason)
	}
	return text
}

func fails(s *admin.Sink) bool {
	return s.State == "failing" || s.State == "tripped" || s.State == "opening" && s.LastError != ""
}

func failureText(s *admin.Sink, now int64) string {
	text := fmt.Sprintf("sink %s fails", escape(s.Label))
	if s.FailingSinceMS != nil {
		text = fmt.Sprintf("sink %s fails for %s", escape(s.Label), since(now-*s.FailingSinceMS))
	}
	if s.LastError != "" {
		text += ": " + escape(s.LastError)
	}
	return text
}

type rates struct {
	Accepted       float64 `json:"accepted"`
	Delivered      float64 `json:"delivered"`
	Evicted        float64 `json:"evicted"`
	Expired        float64 `json:"expired"`
	Dead           float64 `json:"dead"`
	Lost           float64 `json:"lost"`
	LettersEvicted float64 `json:"dead_letters_evicted"`
	Rejected       float64 `json:"rejected"`
}

// dropped is what was accepted and is not delivered, a second. Nobody asked for
// it, so a purge does not count.
func (r *rates) dropped() float64 { return r.Evicted + r.Expired + r.Dead + r.Lost }

// lost is what nobody can get back, a second. Dead letters are kept, at first.
func (r *rates) lost() float64 { return r.Evicted + r.Expired + r.Lost + r.LettersEvicted }

type namespaceState struct {
	admin.NamespaceOverview
	Rates rates `json:"rates"`
}

// ageShare is the age of the oldest entry as a share of max_age, 0 if unknown.
func (n *namespaceState) ageShare() float64 {
	if n.OldestAgeMS == nil || n.MaxAgeMS <= 0 {
		return 0
	}
	return float64(*n.OldestAgeMS) / float64(n.MaxAgeMS)
}

type overview struct {
	admin.Overview
	Namespaces []namespaceState `json:"namespaces"`
	Queues     []queueState     `json:"queues"`
}

type partitionRow struct {
	admin.PartitionRow
	Namespace   string  `json:"namespace"` // ours: the answer is of one namespace
	OldestAgeMS *int64  `json:"oldest_age_ms"`
	InPerS      float64 `json:"in_per_s"`
	OutPerS     float64 `json:"out_per_s"`
	EvictedPerS float64 `json:"evicted_per_s"`
	ExpiredPerS float64 `json:"expired_per_s"`
	raw         json.RawMessage
	empty       bool // a pause that waits for the first entry
}

type partitionList struct {
	admin.PartitionList
	Partitions []json.RawMessage `json:"partitions"`
}

// body is the payload on one line.
func body(p *admin.Shown) string {
	text := ""
	switch {
	case p.Data != nil:
		text = compact(p.Data)
	case p.Text != "":
		text = p.Text
	case p.Base64 != "":
		text = "base64:" + p.Base64
	}
	if p.Cut {
		text += " … (cut)"
	}
	return text
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}
