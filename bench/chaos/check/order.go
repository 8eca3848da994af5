package check

import (
	"fmt"
	"hash/fnv"
	"time"
)

// order is C7: a sink that remembers the highest sequence of each partition, and
// fences off what is not above it, misses nothing.
func (r *run) order() {
	highest := map[string]int64{}
	met := map[place]bool{}
	var late tally
	for i := range r.Posts {
		p := &r.Posts[i]
		for _, l := range p.Lines {
			at := place{p.Partition, l.Seq}
			if !met[at] && l.Seq < highest[p.Partition] && !r.thawing(p.Worker, p.At) && !r.lapsed(p.At, p.At) {
				late.add("seq %d of %s after %d, by %s", l.Seq, p.Partition, highest[p.Partition], p.Worker)
			}
			met[at] = true
			highest[p.Partition] = max(highest[p.Partition], l.Seq)
		}
	}
	r.failAll("C7", late, "entries were first presented after their successors")
}

// A lease has at least a second left when a Write begins, and an answer as prompt
// as this reaches its worker within the sink timeout.
const (
	heldFor = 900 * time.Millisecond
	prompt  = 100 * time.Millisecond
)

// holders is C7 for leases: what the sink took, and said so promptly, is being
// settled by the worker that wrote it. While its lease lasts nobody presents it.
func (r *run) holders() {
	took := map[place]*Post{}
	var twice tally
	for i := range r.Posts {
		p := &r.Posts[i]
		settled := p.taken() && p.Answered.Sub(p.At) < prompt && p.Answered.Add(r.ahead(p.At, p.Answered)).Before(r.cutOff(p))
		for _, l := range p.Lines {
			at := place{p.Partition, l.Seq}
			if was := took[at]; was != nil && p.At.Sub(was.At) < heldFor && !r.thawing(was.Worker, was.At) && !r.thawing(p.Worker, p.At) && !r.lapsed(was.At, p.At) {
				twice.add("seq %d in %v, and %v later in %v", l.Seq, was, p.At.Sub(was.At).Round(time.Millisecond), p)
			}
			if settled {
				took[at] = p
			}
		}
	}
	r.failAll("C7", twice, "entries were presented while another held them")
}

// cutOff is from when on a Write may have been ended by the age of its oldest
// entry, whatever the sink answered.
func (r *run) cutOff(p *Post) time.Time {
	oldest := p.At
	for _, l := range p.Lines {
		if ts := time.UnixMilli(l.TS); ts.Before(oldest) {
			oldest = ts
		}
	}
	return oldest.Add(r.Policy.MaxAge - tolerance)
}

// batches is C7 for batch ids: one repeats if and only if the same entries come again.
func (r *run) batches() {
	contents, ids := map[string]string{}, map[string]string{}
	var reused, renamed tally
	for i := range r.Posts {
		p := &r.Posts[i]
		sum := fnv.New64a()
		for _, l := range p.Lines {
			_, _ = fmt.Fprint(sum, l.Seq, " ", l.Data.UID, ",")
		}
		content := fmt.Sprintf("%s/%d entries/%x", p.Partition, len(p.Lines), sum.Sum64())
		if was, ok := contents[p.Batch]; ok && was != content {
			reused.add("%s was %s and is %s", p.Batch, was, content)
		}
		if was, ok := ids[content]; ok && was != p.Batch {
			renamed.add("%s was %s and is %s", content, was, p.Batch)
		}
		contents[p.Batch], ids[content] = content, p.Batch
	}
	r.failAll("C7", reused, "batch ids came with other entries")
	r.failAll("C7", renamed, "batches came under another id")
}

// stale is C8: ages at the sink, by the store's clock as its worker knew it.
func (r *run) stale() {
	var old tally
	for i := range r.Posts {
		p := &r.Posts[i]
		behind, _ := r.offsets(p.At.Add(-unaware), p.At)
		for _, l := range p.Lines {
			age := p.At.Add(behind).Sub(time.UnixMilli(l.TS))
			if age > r.Policy.MaxAge+tolerance && !r.thawing(p.Worker, p.At) {
				old.add("seq %d of %s, %v old, by %s", l.Seq, p.Partition, age.Round(time.Millisecond), p.Worker)
			}
		}
	}
	r.failAll("C8", old, "entries were presented stale")
}
