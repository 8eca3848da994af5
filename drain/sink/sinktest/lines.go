package sinktest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// ParseLines reads the NDJSON that package sink writes, strictly: whole lines,
// known fields, one form of payload each.
func ParseLines(data []byte) ([]Record, error) {
	var records []Record
	for len(data) > 0 {
		line, rest, ended := bytes.Cut(data, []byte("\n"))
		if !ended {
			return nil, fmt.Errorf("line %d has no end", len(records)+1)
		}
		r, err := parseLine(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", len(records)+1, err)
		}
		records = append(records, r)
		data = rest
	}
	return records, nil
}

func parseLine(line []byte) (Record, error) {
	var l struct {
		Namespace string
		Partition string
		Seq       int64
		TS        int64
		ID        *string
		Batch     string
		Attempt   int
		Data      json.RawMessage
		Text      *string
		Base64    *[]byte
	}
	d := json.NewDecoder(bytes.NewReader(line))
	d.DisallowUnknownFields()
	if err := d.Decode(&l); err != nil {
		return Record{}, err
	}
	if d.More() {
		return Record{}, errors.New("more than one value")
	}
	r := Record{
		Namespace: l.Namespace,
		Partition: l.Partition,
		Seq:       l.Seq,
		Occurred:  l.TS,
		Batch:     l.Batch,
		Attempt:   l.Attempt,
	}
	if l.ID != nil {
		r.ID = []byte(*l.ID)
	}
	forms := 0
	if l.Data != nil {
		forms++
		r.Payload = l.Data
	}
	if l.Text != nil {
		forms++
		r.Payload = []byte(*l.Text)
	}
	if l.Base64 != nil {
		forms++
		r.Payload = *l.Base64
	}
	if forms != 1 {
		return Record{}, fmt.Errorf("payload has %d forms, want 1", forms)
	}
	return r, nil
}
