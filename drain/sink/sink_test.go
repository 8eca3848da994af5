package sink

import (
	"regexp"
	"testing"
)

func TestABatchIDRepeatsIfAndOnlyIfTheEntriesDo(t *testing.T) {
	t.Parallel()
	base := func() *Batch {
		b := batchOf("one", "two")
		b.Entries[0].ID = []byte("id")
		return b
	}
	id := base().ID()
	if !regexp.MustCompile("^[0-9a-f]{32}$").MatchString(id) {
		t.Errorf("got %q, want 32 hex digits", id)
	}
	again := base()
	for range 2 { // computed, then remembered
		if again.ID() != id {
			t.Error("the same entries have another id")
		}
	}
	same := base()
	same.Attempt = 7
	if same.ID() != id {
		t.Error("another attempt has another id")
	}
	for name, change := range map[string]func(b *Batch){
		"namespace":         func(b *Batch) { b.Namespace += "x" },
		"partition":         func(b *Batch) { b.Partition += "x" },
		"namespace's end":   func(b *Batch) { b.Namespace, b.Partition = b.Namespace+"c", b.Partition[1:] },
		"seq":               func(b *Batch) { b.Entries[1].Seq++ },
		"entry id":          func(b *Batch) { b.Entries[0].ID = nil },
		"entry id's end":    func(b *Batch) { b.Entries[0].ID, b.Entries[0].Payload = []byte("ido"), []byte("ne") },
		"payload":           func(b *Batch) { b.Entries[1].Payload = []byte("twO") },
		"evicted first":     func(b *Batch) { b.Entries = b.Entries[1:] },
		"one more accepted": func(b *Batch) { b.Entries = append(b.Entries, b.Entries[1]) },
	} {
		b := base()
		change(b)
		if b.ID() == id {
			t.Errorf("%s: the id did not change", name)
		}
	}
}
