package admin

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/mask"
)

const (
	letterPage = 500 // letters of one read
	// A list with a filter looks at so many pages at most, and its cursor goes on behind them.
	maxFilterPages = 20
	// Letters are counted by reason, in so many pages at most, and the count is kept for a while.
	maxCountedPages = 20
	countedFor      = 10 * time.Second
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
	Total   int64          `json:"total"` // of the namespace, whatever the filter
	Bytes   int64          `json:"bytes"`
	Reasons map[string]int `json:"reasons"` // of the newest 10,000, at most 10 s old
	Letters []Letter       `json:"letters"`
	Cursor  string         `json:"cursor"` // of the next page; empty after the last
}

// LetterPayload is a dead letter with its payload.
type LetterPayload struct {
	Letter
	Shown
}

// letterFilter selects dead letters. An empty field selects all.
type letterFilter struct{ reason, partition, entryID string }

func (f letterFilter) has(l partition.Letter) bool {
	return (f.reason == "" || f.reason == l.Reason) && (f.partition == "" || f.partition == l.Partition) &&
		(f.entryID == "" || f.entryID == l.EntryID)
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
	filter := letterFilter{r.param("reason"), r.param("partition"), r.param("id")}
	if list.Letters, list.Cursor, err = filterLetters(r.ctx, r.view.Store, ns, filter, masks,
		r.param("cursor"), limit); err != nil {
		return nil, err
	}
	list.Reasons, err = s.reasons.of(r.ctx, r.view.Store, ns, s.observer.now())
	return list, err
}

// filterLetters reads pages until it has limit letters. A cursor is that of a page, a plus
// sign, and how many letters of the page came before.
func filterLetters(ctx context.Context, store Store, ns *partition.Namespace, f letterFilter,
	masks []string, cursor string,
	limit int) (list []Letter, next string, err error) {
	list = []Letter{}
	cursor, offset, _ := strings.Cut(cursor, "+")
	skip, err := strconv.Atoi(offset)
	if offset != "" && (err != nil || skip < 0) {
		return nil, "", badRequest("cursor: want that of the page before, or none")
	}
	size := letterPage
	if f == (letterFilter{}) && skip == 0 {
		size = limit
	}
	for range maxFilterPages {
		page, err := store.DeadLetters(ctx, ns, cursor, size)
		if err != nil {
			return nil, "", err
		}
		for i, l := range page.Letters {
			if i < skip || !f.has(l) {
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

// letterReasons counts the dead letters of namespaces by reason. However many ask, the letters are
// read once in countedFor.
type letterReasons struct {
	mu    sync.Mutex // also held while letters are read
	known map[string]reasonCount
}

type reasonCount struct {
	at      time.Time
	letters map[string]int
}

// of is the count of a namespace. The map is not written any more.
func (l *letterReasons) of(ctx context.Context, store Store, ns *partition.Namespace,
	now time.Time) (map[string]int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if known, ok := l.known[ns.Name]; ok && now.Sub(known.at) < countedFor {
		return known.letters, nil
	}
	letters, cursor := map[string]int{}, ""
	for range maxCountedPages {
		page, err := store.DeadLetters(ctx, ns, cursor, letterPage)
		if err != nil {
			return nil, err
		}
		for _, letter := range page.Letters {
			letters[letter.Reason]++
		}
		if cursor = page.Next; cursor == "" {
			break
		}
	}
	if l.known == nil || len(l.known) >= 1000 {
		l.known = map[string]reasonCount{}
	}
	l.known[ns.Name] = reasonCount{now, letters}
	return letters, nil
}

// forget makes the next of read the letters again.
func (l *letterReasons) forget(namespace string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, namespace)
}
