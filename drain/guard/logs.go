package guard

import (
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"
)

const (
	// letterPause is how often the log names the dead letters of one kind.
	letterPause = time.Minute
	// maxLetterKinds bounds the kinds that are told apart; others share one.
	maxLetterKinds = 32
)

// A letterLog names the dead letters of a namespace in the log: each kind at most once
// a minute, with the sink's words and how many there were since. A sink that rejects
// everything must not fill a disk.
type letterLog struct {
	log *zap.Logger

	mu    sync.Mutex
	kinds map[string]*letterKind
}

// A letterKind is dead letters whose words differ in numbers only.
type letterKind struct {
	entries int // since they were named
	named   time.Time
}

// add counts a dead letter of a partition or a queue, and names it in the log when its
// kind is due. which is its sequence or id.
func (l *letterLog) add(partition string, which zap.Field, err error) {
	words := WordsOf(err)
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kindOf(words)
	k.entries++
	if time.Since(k.named) < letterPause {
		return
	}
	l.log.Warn("entries given up as dead letters", zap.Int("entries", k.entries),
		zap.String("partition", partition), which, zap.String("reason",
			ReasonRejected), zap.String("error", words))
	k.entries, k.named = 0, time.Now()
}

// kindOf returns the kind of some words; l.mu is held. A full list forgets kinds that
// the log has not named for a letterPause; what they have counted goes to the shared kind.
func (l *letterLog) kindOf(words string) *letterKind {
	key := withoutNumbers(words)
	if k := l.kinds[key]; k != nil {
		return k
	}
	if len(l.kinds) >= maxLetterKinds {
		unnamed := 0
		for old, k := range l.kinds {
			if old != "" && time.Since(k.named) >= letterPause {
				unnamed += k.entries
				delete(l.kinds, old)
			}
		}
		if k := l.kinds[""]; k != nil {
			k.entries += unnamed
		} else if unnamed > 0 {
			l.kinds[""] = &letterKind{entries: unnamed}
		}
		if len(l.kinds) >= maxLetterKinds {
			key = ""
			if k := l.kinds[key]; k != nil {
				return k
			}
		}
	}
	if l.kinds == nil {
		l.kinds = make(map[string]*letterKind)
	}
	k := &letterKind{}
	l.kinds[key] = k
	return k
}

// withoutNumbers replaces each run of digits by one 0.
func withoutNumbers(text string) string {
	var b strings.Builder
	digit := false
	for i := range len(text) {
		c := text[i]
		if c < '0' || c > '9' {
			b.WriteByte(c)
		} else if !digit {
			b.WriteByte('0')
		}
		digit = c >= '0' && c <= '9'
	}
	return b.String()
}

// Quarantine is how long a partition or a queue that the store rejects is left alone.
const Quarantine = 30 * time.Second

// A RejectionLog names a partition that the store rejects, once a quarantine for a
// namespace: a person has to look.
type RejectionLog struct {
	Log *zap.Logger

	mu   sync.Mutex
	last time.Time
}

func (r *RejectionLog) Add(what string, err error, fields ...zap.Field) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.last) < Quarantine {
		return
	}
	r.last = time.Now()
	r.Log.Error(what, append(fields, zap.Error(err))...)
}
