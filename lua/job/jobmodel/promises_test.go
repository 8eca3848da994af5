package jobmodel

// ran follows each script that ran: it hears the wakes, and checks the shard.
// may says which jobs may be gone now.
func (w *World) ran(verb string, may func(*truth) bool) {
	w.Count[verb]++
	w.trace("%s, wakes %v, ready %v, leased %v", verb, w.model.Wakes, readyLists(w.model), w.model.Lease)
	for _, m := range w.model.Wakes {
		delete(w.asleep, m.Queue)
	}
	w.model.Wakes = nil
	for ref, t := range w.jobs {
		if t.gone || t.vanished || w.model.queue(ref.Queue).Jobs[ref.Seq] != nil {
			continue
		}
		if may == nil || !may(t) {
			w.bad("%s: job %v vanished: it ends at %d, now is %d, %d claims of %d", verb, ref, t.ends, w.ms(), t.claims, t.tries)
		}
		t.gone = true
	}
	w.check(verb)
}

func readyLists(m *Shard) map[string][]int64 {
	ready := map[string][]int64{}
	for name, q := range m.Queue {
		ready[name] = q.Ready
	}
	return ready
}

// check holds the shard against the invariants.
func (w *World) check(verb string) {
	m, clean := w.model, w.vanished+w.unlisted == 0
	places := map[Ref]int{}
	var jobs, dead int64
	for name, q := range m.Queue {
		jobs += int64(len(q.Jobs))
		dead += int64(len(q.Dead))
		w.checkQueue(verb, name, m, places, clean)
	}
	for kind, set := range map[string]map[Ref]float64{"delay": m.Delay, "lease": m.Lease} {
		for ref := range set {
			places[ref]++
			if m.queue(ref.Queue).Jobs[ref.Seq] == nil && clean {
				w.bad("%s: %s of %v has no job", verb, kind, ref)
			}
		}
	}
	for name, q := range m.Queue {
		for seq := range q.Jobs {
			ref := Ref{name, seq}
			if n := places[ref]; n != 1 && !(n == 0 && w.jobs[ref].unlisted) {
				w.bad("%s: job %v has %d places", verb, ref, n)
			}
		}
	}
	if m.live() != jobs && w.vanished == 0 {
		w.bad("%s: the ledger has %d jobs, the shard %d", verb, m.live(), jobs)
	}
	if m.Ledger["dead"] != dead {
		w.bad("%s: the ledger has %d dead, the shard %d", verb, m.Ledger["dead"], dead)
	}
	for name := range w.asleep {
		if seq := w.claimable(name); seq > 0 {
			w.bad("%s: who waits for %s was not woken though %d is ready", verb, name, seq)
		}
	}
	w.checkKept(verb)
	if m.keptKeys() > w.quota.Keys {
		w.bad("%s: %d keys are beyond the quota", verb, m.keptKeys())
	}
	if m.live() > w.quota.Jobs || int64(len(m.Queues)) > w.quota.Queues {
		w.bad("%s: %d jobs in %d queues are beyond the quota", verb, m.live(), len(m.Queues))
	}
	for ref := range m.Slots {
		if _, leased := m.Lease[ref]; !leased && clean {
			w.bad("%s: %v holds a slot", verb, ref)
		}
	}
	for ref, n := range m.Attempts {
		if n < 1 || m.queue(ref.Queue).Jobs[ref.Seq] == nil && clean {
			w.bad("%s: attempts of %v are %d", verb, ref, n)
		}
	}
}

func (w *World) checkQueue(verb, name string, m *Shard, places map[Ref]int, clean bool) {
	q := m.Queue[name]
	var tombstones int64
	for _, seq := range q.Ready {
		places[Ref{name, seq}]++
		if q.Jobs[seq] == nil {
			tombstones++
		}
	}
	for seq := range q.Dead {
		places[Ref{name, seq}]++
		if q.Jobs[seq] == nil && clean {
			w.bad("%s: dead %d of %s has no job", verb, seq, name)
		}
	}
	ids := 0
	for seq, j := range q.Jobs {
		if j.CallerID == "" {
			continue
		}
		if ids++; q.IDs[j.CallerID] != seq {
			w.bad("%s: job %d of %s lacks its id %s", verb, seq, name, j.CallerID)
		}
	}
	if !clean {
		return
	}
	if tombstones != m.Tombstones[name] {
		w.bad("%s: %s has %d references without a job, %d are known", verb, name, tombstones, m.Tombstones[name])
	}
	if _, listed := m.Queues[name]; listed != (len(q.Jobs) > 0) {
		w.bad("%s: %s has %d jobs, in the index: %v", verb, name, len(q.Jobs), listed)
	}
	if ids != len(q.IDs) {
		w.bad("%s: %s has %d ids for %d jobs with one", verb, name, len(q.IDs), ids)
	}
}

// checkEnd closes the account of the shard in which nothing is left.
func (w *World) checkEnd() {
	m, l := w.model, w.model.Ledger
	for name, q := range m.Queue {
		if len(q.Errors)+len(q.Progress) > 0 && w.vanished+w.unlisted == 0 {
			w.bad("end: errors %v, progress %v are left of jobs that are gone", q.Errors, q.Progress)
		}
		if len(q.Jobs)+len(q.Ready) > 0 {
			w.bad("end: %s has %d jobs and %d references left", name, len(q.Jobs), len(q.Ready))
		}
	}
	if len(m.Slots) > 0 && w.vanished+w.unlisted == 0 {
		w.bad("end: slots are left: %v", m.Slots)
	}
	if len(m.Delay)+len(m.Lease) > 0 {
		w.bad("end: %d delayed and %d leased are left", len(m.Delay), len(m.Lease))
	}
	if l["published"] != l["acked"]+l["expired"]+l["deleted"]+l["lost"] {
		w.bad("end: the ledger does not close: %v", l)
	}
	if l["lost"] != w.vanished {
		w.bad("end: %d are lost, foreign changes removed %d", l["lost"], w.vanished)
	}
	if l["published"] < w.known || l["published"] > w.known+w.unknown {
		w.bad("end: published %d, known %d, unknown %d", l["published"], w.known, w.unknown)
	}
	if len(m.Tombstones)+len(m.Queues) > 0 || len(m.Attempts) > 0 && w.vanished+w.unlisted == 0 {
		w.bad("end: tombstones %v, queues %v, attempts %v are left", m.Tombstones, m.Queues, m.Attempts)
	}
}
