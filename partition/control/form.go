package control

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// Format is the newest format of the document that this program understands.
const Format = 1

// namespaceForm is the JSON of a namespace. The keys are those of the file.
type namespaceForm struct {
	Kind         string         `json:"kind"` // queue
	Pool         string         `json:"pool"`
	Description  string         `json:"description,omitempty"`
	Shards       int            `json:"shards"`
	Spread       map[string]int `json:"spread,omitempty"`
	MaxJobs      int64          `json:"max_jobs"`
	MaxQueues    int64          `json:"max_queues"`
	MaxSchedules int64          `json:"max_schedules"`
	Dead         string         `json:"dead"` // keep or drop
	ReplyTTL     string         `json:"reply_ttl"`
	CreatedMS    int64          `json:"created_ms"`
	CreatedBy    string         `json:"created_by,omitempty"`
}

const (
	deadKeep = "keep"
	deadDrop = "drop"
)

// encode is the JSON of an entry. What its name says, and what a Snapshot adds, is not in it.
func encode(form any) string {
	text, _ := json.Marshal(form) // texts and numbers only
	return string(text)
}

func (n *Namespace) encode() string {
	f := namespaceForm{
		Kind:         "queue",
		Pool:         n.Pool,
		Description:  n.Description,
		Shards:       n.Policy.Shards,
		Spread:       n.Policy.Spread,
		MaxJobs:      n.Policy.MaxJobs,
		MaxQueues:    n.Policy.MaxQueues,
		MaxSchedules: n.Policy.MaxSchedules,
		Dead:         deadKeep,
		ReplyTTL:     n.Policy.ReplyTTL.String(),
		CreatedMS:    n.CreatedMS,
		CreatedBy:    n.CreatedBy,
	}
	if n.Policy.DropDead {
		f.Dead = deadDrop
	}
	return encode(f)
}

func (t *Token) encode() string { return encode(t) }
func (a *Admin) encode() string { return encode(a) }
func (r *Rule) encode() string  { return encode(r) }

// decodeEntry reads an entry of the document: a *Namespace, *Token, *Admin or *Rule. Whoever can
// write to Redis may have written it, so it is checked like a new one. An unknown key may
// be a restriction that a newer program made: such an entry is not used.
func decodeEntry(name, value string) (any, error) {
	if len(value) > maxEntryBytes {
		return nil, errors.New("longer than 16 KiB")
	}
	switch {
	case strings.HasPrefix(name, namespaceEntry):
		return decodeNamespace(strings.TrimPrefix(name, namespaceEntry), value)
	case strings.HasPrefix(name, tokenEntry):
		return decodeToken(strings.TrimPrefix(name, tokenEntry), value)
	case strings.HasPrefix(name, adminEntry):
		return decodeAdmin(strings.TrimPrefix(name, adminEntry), value)
	case strings.HasPrefix(name, ruleEntry):
		return decodeRule(strings.TrimPrefix(name, ruleEntry), value)
	}
	return nil, errors.New("no kind of entry that this version knows")
}

func decodeNamespace(name, value string) (*Namespace, error) {
	n := NewNamespace(name, "", "")
	p := &n.Policy
	var f namespaceForm
	if err := decodeForm(value, &f); err != nil {
		return nil, err
	}
	replyTTL, err := time.ParseDuration(f.ReplyTTL)
	switch {
	case err != nil:
		return nil, errors.New("reply_ttl is no duration")
	case f.Kind != "queue":
		return nil, fmt.Errorf("kind %.20q is not one that this version makes at run time", f.Kind)
	case f.Dead != deadKeep && f.Dead != deadDrop:
		return nil, errors.New("dead is neither keep nor drop")
	}
	if len(f.Spread) == 0 {
		f.Spread = nil
	}
	n.Pool = f.Pool
	n.Description = f.Description
	n.CreatedBy = f.CreatedBy
	n.CreatedMS = f.CreatedMS
	p.Shards = f.Shards
	p.Spread = f.Spread
	p.MaxJobs = f.MaxJobs
	p.MaxQueues = f.MaxQueues
	p.MaxSchedules = f.MaxSchedules
	p.DropDead = f.Dead == deadDrop
	p.ReplyTTL = replyTTL
	return &n, n.Validate()
}

func decodeToken(name, value string) (*Token, error) {
	namespace, digits, _ := strings.Cut(name, ":")
	hash, ok := parseHash(digits)
	if !ok {
		return nil, errors.New("its name has no hash")
	}
	t := &Token{}
	if err := decodeForm(value, t); err != nil {
		return nil, err
	}
	t.Namespace, t.Hash = namespace, hash
	return t, t.Validate()
}

func decodeAdmin(name, value string) (*Admin, error) {
	hash, ok := parseHash(name)
	if !ok {
		return nil, errors.New("its name has no hash")
	}
	a := &Admin{}
	if err := decodeForm(value, a); err != nil {
		return nil, err
	}
	a.Hash = hash
	return a, a.Validate()
}

// decodeForm reads exactly one JSON object with known keys. Its errors show no value,
// which may be a token.
func decodeForm(value string, into any) error {
	d := json.NewDecoder(bytes.NewReader([]byte(value)))
	d.DisallowUnknownFields()
	if err := d.Decode(into); err != nil {
		return errors.New("not the JSON of this kind of entry, or of a newer version")
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("more than one JSON value")
	}
	return nil
}
