package partition

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
)

// A Letter is a dead letter: what is kept of an entry that its sink rejected for good.
type Letter struct {
	ID        string `json:"-"` // 16 hex digits, of the SHA-256 of Raw
	Shard     int    `json:"-"` // whose list it is in
	Partition string // where the entry was; empty where the letter is unreadable
	Seq       int64  // the entry's sequence
	EntryID   string `json:"id"`      // the client's id of the entry; empty: none
	Occurred  int64  `json:"ts"`      // when the event happened, Unix ms
	DeadAt    int64  `json:"dead_at"` // when it was dead-lettered, Unix ms; 0: it is unreadable
	Reason    string // why; ReasonUnreadable for a value that is no dead letter
	Error     string // what the sink said
	Detail    string // more of it, as the receiver's answer; empty: none
	Attempt   int    // how often the entry had been presented
	Payload   []byte `json:"-"` // as it was sent; of JSON without the white space around it and its line breaks
	Raw       []byte `json:"-"` // the stored bytes

	place int64 // how many older ones there were when it was read
}

// ReasonUnreadable is the Reason of a Letter that Spillway did not write: something else
// pushed it. It can be discarded, but not replayed.
const ReasonUnreadable = "unreadable"

// letterID names a letter by its bytes.
func letterID(raw []byte) string {
	sum := sha256.Sum256(raw)
	return hex.EncodeToString(sum[:8])
}

// letterLine is a letter as the drain writes it: sink.AppendDeadLine.
type letterLine struct {
	Letter
	Data   json.RawMessage
	Text   *string
	Base64 *string
}

// stampLetter adds the time to a letter, in ms of the store's clock. Other bytes than a JSON
// object on a line stay as they are.
func stampLetter(letter []byte, now int64) []byte {
	object, ok := bytes.CutSuffix(letter, []byte("}\n"))
	if !ok {
		return letter
	}
	object = append(slices.Clip(object), `,"dead_at":`...)
	return append(strconv.AppendInt(object, now, 10), "}\n"...)
}

// parseLetter reads a stored letter.
func parseLetter(shard int, raw []byte) Letter {
	l := Letter{ID: letterID(raw), Shard: shard, Reason: ReasonUnreadable, Raw: raw}
	var line letterLine
	if json.Unmarshal(raw, &line) != nil || !ValidPartition(line.Partition) || line.EntryID != "" &&
		!ValidID(line.EntryID) {
		return l
	}
	payload := []byte(line.Data)
	switch {
	case line.Text != nil:
		payload = []byte(*line.Text)
	case line.Base64 != nil:
		var err error
		if payload, err = base64.StdEncoding.DecodeString(*line.Base64); err != nil {
			return l
		}
	case payload == nil:
		return l
	}
	found := line.Letter
	found.ID, found.Shard, found.Payload, found.Raw = l.ID, shard, payload, raw
	return found
}
