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
	Letter     string `json:"letter" help:"16 hex digits, of its bytes."`
	Shard      int    `json:"shard"`
	Partition  string `json:"partition" help:"Empty: unreadable."`
	Seq        int64  `json:"seq"`
	ID         string `json:"id,omitempty"`
	OccurredMS int64  `json:"occurred_at_ms"`
	DeadAtMS   int64  `json:"dead_at_ms"`
	Reason     string `json:"reason"`
	Detail     string `json:"detail,omitempty" help:"What the sink said."`
	Attempt    int    `json:"attempt"`
	Bytes      int    `json:"bytes" help:"Of its payload."`
}

type listLetters struct {
	By        *string `enum:"cause" placeholder:"cause" help:"cause: count them by cause instead, those of most first. A cause is what was said, with # for each word that has a digit in it."`
	Reason    string  `placeholder:"REASON" help:"Only those with this reason."`
	Partition string  `placeholder:"NAME" help:"Only those of this partition."`
	ID        string  `placeholder:"ID" help:"Only those of the entry with this id."`
	Cause     string  `placeholder:"CAUSE" help:"Only those of this cause, as --by cause prints it."`
	Limit     int     `default:"50" bounds:"1..500" help:"Letters to list, at most 500."`
	After     string  `placeholder:"NEXT" help:"Go on where a list ended."`
}

// LetterList is a page of dead letters, or their causes.
type LetterList struct {
	Total   int64    `json:"total" help:"Of the namespace, whatever the filter."`
	Bytes   int64    `json:"bytes"`
	Letters []Letter `json:"letters"`
	Next    string   `json:"next" help:"The after of the next page; empty after the last."`
	*DeadCauses
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

func (s *Server) dead(r *request, q *listLetters) (list LetterList, err error) {
	ns := r.namespace()
	if r.err != nil {
		return list, r.err
	}
	o, err := r.view.Store.Overview(r.ctx, ns)
	if err != nil {
		return list, err
	}
	list = LetterList{Total: o.DeadLetters, Bytes: o.DeadBytes, Letters: []Letter{}}
	if q.By != nil {
		list.DeadCauses, err = s.letterCauses(r, ns)
		return list, err
	}
	var has func(partition.Letter) bool
	if chosen := (letters{Partition: q.Partition}); q.Reason+q.Partition+q.Cause+q.ID != "" {
		if q.Reason != "" {
			chosen.Reason = &q.Reason
		}
		if q.Cause != "" {
			chosen.Cause = &q.Cause
		}
		has = func(l partition.Letter) bool {
			return chosen.has(l, r.view.MaskFields) && (q.ID == "" || q.ID == l.EntryID)
		}
	}
	list.Letters, list.Next, err = filterLetters(r.ctx, r.view.Store, ns, has, r.masks, q.After, q.Limit)
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
		return nil, "", badRequest("after: want the next of the page before, or none")
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

type ofLetter struct {
	Letter string `arg:"" help:"The letter, as dead ls names it."`
}

func (s *Server) letter(r *request, q *ofLetter) (LetterPayload, error) {
	ns := r.namespace()
	if !letterID.MatchString(q.Letter) {
		r.fail(errNoLetter)
	}
	if r.err != nil {
		return LetterPayload{}, r.err
	}
	l, err := r.view.Store.DeadLetter(r.ctx, ns, q.Letter)
	return LetterPayload{letterOf(l, r.masks), payloadOf(payloadOfLetter(l), r.masks).Shown}, err
}
