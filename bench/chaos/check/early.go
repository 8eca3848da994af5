package check

import "fmt"

// early is C16, of a namespace whose entries are answered first and stored later. What came to no
// sink, and nobody accounts for, was in a server that was killed, or had no time left as it stopped.
func (r *run) early(n *Namespace, answered int64) {
	if answered < int64(r.Floor.Early) {
		r.fail("C12", "%d entries got 202, want at least %d", answered, r.Floor.Early)
	}
	sequences := map[uint64]map[int64]bool{}
	var often tally
	for _, p := range n.Posts {
		for _, l := range p.Lines {
			if sequences[l.Data.UID] == nil {
				sequences[l.Data.UID] = map[int64]bool{}
			}
			sequences[l.Data.UID][l.Seq] = true
		}
	}
	for uid, seqs := range sequences {
		if len(seqs) > 2 { // only what follows an attempt of unknown outcome has a key
			often.add("uid %d has %d sequences", uid, len(seqs))
		}
	}
	r.failAll("C16", often, "entries of "+n.Name+" are stored more often than twice")

	var gone tally
	for i := range n.Sent {
		if s := &n.Sent[i]; s.Outcome == Accepted && sequences[s.UID] == nil && !r.diedWith(s) {
			gone.add("uid %d of %s", s.UID, s.Partition)
		}
	}
	known := n.Ledger["evicted"] + n.Ledger["expired"] + n.Ledger["lost"] + n.Ledger["buffered"]
	for _, outcome := range []string{"rejected", "lost"} {
		known += r.sum(fmt.Sprintf("spillway_ingest_unacked_entries_total{namespace=%q,outcome=%q}", n.Name, outcome))
	}
	if int64(gone.n) > known {
		r.failAll("C16", gone, fmt.Sprintf("entries of %s got 202 and came nowhere, servers and ledger know of %d", n.Name, known))
	}
	accounts := 0
	for _, p := range r.Processes {
		l := p.Unacked
		if l != nil {
			accounts++
		}
		if l["taken"] != l["waiting"]+l["stored"]+l["rejected"]+l["lost"] || p.Alive && l["waiting"] != 0 {
			r.fail("C16", "%s: its account of what it answered first is %v", p.Name, l)
		}
	}
	if accounts == 0 {
		r.fail("C16", "no process has an account of what it answered first")
	}
}

// diedWith says that the server of an entry ended while it may still have held it in memory: soon after the
// answer, if nothing else went wrong meanwhile.
func (r *run) diedWith(s *Sent) bool {
	for _, end := range r.Faults {
		if end.Target != s.Server || end.Kind != "kill" && end.Kind != "term" || end.To.Before(s.Start) {
			continue
		}
		held := end.From.Sub(s.End)
		for _, f := range r.Faults {
			if f.Target != s.Server && f.To.After(s.Start) && f.From.Before(end.From) {
				held -= f.To.Sub(f.From) + thawTime
			}
		}
		if held < thawTime {
			return true
		}
	}
	return false
}
