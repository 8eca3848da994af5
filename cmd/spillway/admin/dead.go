package admin

import (
	"context"
	"regexp"
	"strconv"
	"strings"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/mask"
)

const (
	letterPage = 500 // letters of one read
	// A list with a filter looks at so many pages at most, and its cursor goes on behind them.
	maxFilterPages = 20
)

// Letter is a dead letter without its payload.
type Letter struct {
	Letter     string `json:"letter"` // 16 hex digits, of its bytes
	Shard      int    `json:"shard"`
	Partition  string `json:"partition"` // empty: unreadable
	Seq        int64  `json:"seq"`
	ID         string `json:"id,omitempty"`
	OccurredMS int64  `json:"occurred_at_ms"`
	DeadAtMS   int64  `json:"dead_at_ms"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail,omitempty"` // what the sink said
	Attempt    int    `json:"attempt"`
	Bytes      int    `json:"bytes"` // of its payload
}

// LetterList is a page of dead letters.
type LetterList struct {
	Total   int64    `json:"total"` // of the namespace, whatever the filter
	Bytes   int64    `json:"bytes"`
	Letters []Letter `json:"letters"`
	Cursor  string   `json:"cursor"` // of the next page; empty after the last
}

// LetterPayload is a dead letter with its payload.
type LetterPayload struct {
	Letter
	Shown
}

// letterOf hides in what the sink said what masks hide in the payload.
func letterOf(l partition.Letter, masks []string) Letter {
	detail := l.Error
	if l.Detail != "" && detail != "" {
		detail += ": "
	}
	return Letter{
		l.ID,
		l.Shard,
		l.Partition,
		l.Seq,
		l.EntryID,
		l.Occurred,
		l.DeadAt,
		l.Reason,
		mask.Quote(detail+l.Detail, l.Payload, masks),
		l.Attempt,
		len(payloadOfLetter(l)),
	}
}

// payloadOfLetter is the payload; what is no letter of ours is shown as it is.
func payloadOfLetter(l partition.Letter) []byte {
	if l.Reason == partition.ReasonUnreadable {
		return l.Raw
	}
	return l.Payload
}

func (s *Server) dead(r *request) (any, error) {
	ns := r.namespace()
	limit := r.number("limit", 50, 1, letterPage)
	masks := s.masks(r)
	if r.err != nil {
		return nil, r.err
	}
	o, err := r.view.Store.Overview(r.ctx, ns)
	if err != nil {
		return nil, err
	}
	list := LetterList{Total: o.DeadLetters, Bytes: o.DeadBytes}
	chosen, id := DeleteRequest{Reason: r.param("reason"), Partition: r.param("partition"), Cause: r.param("cause")}, r.param("id")
	has := func(l partition.Letter) bool {
		return chosen.has(l, r.view.MaskFields) && (id == "" || id == l.EntryID)
	}
	if chosen.Reason+chosen.Partition+chosen.Cause+id == "" {
		has = nil
	}
	list.Letters, list.Cursor, err = filterLetters(r.ctx, r.view.Store, ns, has, masks, r.param("cursor"), limit)
	return list, err
}

// filterLetters reads pages until it has limit letters; has nil is all. A cursor is that of a page, a plus
// sign, and how many letters of the page came before.
func filterLetters(ctx context.Context, store Store, ns *partition.Namespace, has func(partition.Letter) bool,
	masks []string, cursor string,
	limit int) (list []Letter, next string, err error) {
	list = []Letter{}
	cursor, offset, _ := strings.Cut(cursor, "+")
	skip, err := strconv.Atoi(offset)
	if offset != "" && (err != nil || skip < 0) {
		return nil, "", badRequest("cursor: want that of the page before, or none")
	}
	size := letterPage
	if has == nil && skip == 0 {
		size = limit
	}
	for range maxFilterPages {
		page, err := store.DeadLetters(ctx, ns, cursor, size)
		if err != nil {
			return nil, "", err
		}
		for i, l := range page.Letters {
			if i < skip || has != nil && !has(l) {
				continue
			}
			if len(list) == limit {
				return list, cursor + "+" + strconv.Itoa(i), nil
			}
			list = append(list, letterOf(l, masks))
		}
		if cursor, skip = page.Next, 0; cursor == "" || len(list) == limit {
			break
		}
	}
	return list, cursor, nil
}

var (
	errNoLetter = notFound(codeNoSuchLetter, "no dead letter with this id is kept")
	letterID    = regexp.MustCompile(`^[0-9a-f]{16}$`)
)

func (s *Server) letter(r *request) (any, error) {
	ns := r.namespace()
	masks := s.masks(r)
	id := r.PathValue("letter")
	if !letterID.MatchString(id) {
		r.fail(errNoLetter)
	}
	if r.err != nil {
		return nil, r.err
	}
	l, err := r.view.Store.DeadLetter(r.ctx, ns, id)
	return LetterPayload{letterOf(l, masks), payloadOf(payloadOfLetter(l), masks).Shown}, err
}
