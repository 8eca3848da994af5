package operate

import (
	"bytes"
	"encoding/json"
	"fmt"

	"github.com/spillway-io/spillway/partition"
)

// The answers of the admin API, as far as the commands use them.

type pause struct {
	SinceMS int64  `json:"since_ms"` // Unix ms
	By      string `json:"by"`
	Reason  string `json:"reason"`
}

func (p *pause) text(now int64) string {
	text := fmt.Sprintf("paused (by %s, %s ago)", escape(p.By), since(now-p.SinceMS))
	if p.Reason != "" {
		text += ": " + escape(p.Reason)
	}
	return text
}

type sinkState struct {
	Label          string   `json:"label"`
	State          string   `json:"state"` // open, opening, failing, tripped or paused
	FailingSinceMS *int64   `json:"failing_since_ms"`
	P99MS          *float64 `json:"p99_ms"`
	LastError      string   `json:"last_error"`
}

func (s *sinkState) failing() bool {
	return s.State == "failing" || s.State == "tripped" || s.State == "opening" && s.LastError != ""
}

func (s *sinkState) text(now int64) string {
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
	Namespace        string             `json:"namespace"`
	Buffered         int64              `json:"buffered"`
	Partitions       int64              `json:"partitions"`
	OldestAgeMS      *int64             `json:"oldest_age_ms"`
	MaxAgeMS         int64              `json:"max_age_ms"`
	Capacity         int64              `json:"capacity"`
	DeadLetters      int64              `json:"dead_letters"`
	ReadAtMS         int64              `json:"read_at_ms"` // 0: not read yet
	Ledger           partition.Ledger   `json:"ledger"`
	Rates            rates              `json:"rates"`
	Rejected         map[string]float64 `json:"rejected"` // by code, a second
	Paused           *pause             `json:"paused"`
	PausedPartitions int64              `json:"paused_partitions"`
	Sinks            []sinkState        `json:"sinks"`
}

// ageShare is the age of the oldest entry as a share of max_age, 0 if unknown.
func (n *namespaceState) ageShare() float64 {
	if n.OldestAgeMS == nil || n.MaxAgeMS <= 0 {
		return 0
	}
	return float64(*n.OldestAgeMS) / float64(n.MaxAgeMS)
}

type overview struct {
	NowMS int64 `json:"now_ms"`
	Store struct {
		Mode  string   `json:"mode"`
		Ready bool     `json:"ready"`
		Error string   `json:"error"`
		RTTMS *float64 `json:"rtt_ms"`

		Degraded []string `json:"degraded"` // codes of what it cannot do now
		Warnings []string `json:"warnings"`
	} `json:"store"`
	Role       string           `json:"role"`
	Namespaces []namespaceState `json:"namespaces"`
	Queues     []queueState     `json:"queues"` // namespaces of kind queue
	Workers    struct {
		Size int `json:"size"`
		Busy int `json:"busy"`
	} `json:"workers"`
}

type partitionRow struct {
	Namespace   string  `json:"namespace"` // ours: the answer is of one namespace
	Partition   string  `json:"partition"`
	Depth       int64   `json:"depth"`
	Capacity    int64   `json:"capacity"`
	Fill        float64 `json:"fill"` // 0 to 1
	Leased      bool    `json:"leased"`
	Paused      bool    `json:"paused"`
	OldestAgeMS *int64  `json:"oldest_age_ms"`
	InPerS      float64 `json:"in_per_s"`
	OutPerS     float64 `json:"out_per_s"`
	EvictedPerS float64 `json:"evicted_per_s"`
	ExpiredPerS float64 `json:"expired_per_s"`
	Evicted     int64   `json:"evicted"`
	Expired     int64   `json:"expired"`
	LastError   string  `json:"last_error"`
	Attempt     int64   `json:"attempt"`
	raw         json.RawMessage
	empty       bool // a pause that waits for the first entry
}

type partitionList struct {
	NowMS int64 `json:"now_ms"`
	Sweep struct {
		Complete      bool   `json:"complete"`
		CompletedAtMS *int64 `json:"completed_at_ms"`
		TookMS        int64  `json:"took_ms"`
	} `json:"sweep"`
	Total      int64             `json:"total"`
	Partitions []json.RawMessage `json:"partitions"`
}

// payload are the fields that an entry and a dead letter have in common.
type payload struct {
	ID     *string         `json:"id"`
	Bytes  int64           `json:"bytes"`
	Data   json.RawMessage `json:"data"`
	Text   *string         `json:"text"`
	Base64 *string         `json:"base64"`
	Cut    bool            `json:"cut"`
}

func (p *payload) id() string {
	if p.ID == nil {
		return "-"
	}
	return *p.ID
}

// body is the payload on one line.
func (p *payload) body() string {
	text := ""
	switch {
	case p.Data != nil:
		text = compact(p.Data)
	case p.Text != nil:
		text = *p.Text
	case p.Base64 != nil:
		text = "base64:" + *p.Base64
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
