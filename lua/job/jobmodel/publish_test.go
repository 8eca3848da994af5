package jobmodel

// Publish is one group: jobs of one queue, stored whole or not at all.
type Publish struct {
	Queue      string
	Delay      int64  // ms
	Key        string // of an idempotent publish
	CallerID   string // of a group of one job
	Ends       int64  // ms, 0 = never
	Tries      int
	Attributes string
	Payloads   []string
}

// Stored is the answer to a Publish.
type Stored struct {
	Status int
	First  int64 // sequence
	Count  int   // jobs that are stored so
}

// What Stored.Status says.
const (
	TooManyQueues = 0
	StoredNow     = 1
	StoredBefore  = 2
	Exists        = 3
	TooManyJobs   = 4
	TooManyKeys   = 6
)

// Quota is what a shard may hold.
type Quota struct{ Jobs, Queues, Keys int64 }

// Publish stores each of the groups, or says why it does not.
func (s *Shard) Publish(quota Quota, groups []Publish) []Stored {
	seq := max(s.NowUS, s.Ledger["seq"]+1)
	if s.bug == "sequences follow the clock" {
		seq = s.NowUS
	}
	var replies []Stored
	var names []string
	pushed := map[string]int{}
	for _, g := range groups {
		reply := s.mayPublish(quota, g)
		if reply.Status == StoredNow {
			reply.First = seq
			if _, named := pushed[g.Queue]; !named {
				names = append(names, g.Queue)
			}
			over := s.over(g)
			pushed[g.Queue] += s.store(g, seq)
			if over != 0 {
				s.remove(Ref{g.Queue, over}, g.CallerID)
				s.Ledger["expired"]++
			}
			if g.Key != "" {
				s.Stored[g.Queue+"/"+g.Key] = Stored{StoredBefore, seq, reply.Count}
				s.Keys[(s.now()+KeyKept+511_999)/512_000*512]++ // counted in steps
			}
			seq += int64(reply.Count)
			s.Ledger["seq"] = seq - 1
		}
		replies = append(replies, reply)
	}
	for _, name := range names {
		if pushed[name] > 0 {
			s.wake(name, len(s.queue(name).Ready), pushed[name])
		}
	}
	return replies
}

// mayPublish is the answer to a group that is not stored, or StoredNow without its sequence.
func (s *Shard) mayPublish(quota Quota, g Publish) Stored {
	q, count := s.queue(g.Queue), len(g.Payloads)
	if before, repeated := s.Stored[g.Queue+"/"+g.Key]; g.Key != "" && repeated {
		return before
	}
	live := s.live()
	if first, known := q.IDs[g.CallerID]; known && q.Jobs[first] != nil && s.bug != "a caller's id is not looked up" {
		if s.exists(Ref{g.Queue, first}) || s.bug == "an expired job keeps its caller's id" {
			return Stored{Exists, first, 1}
		}
		live--
	}
	if live+int64(count) > quota.Jobs && s.bug != "the quota is not checked" {
		return Stored{Status: TooManyJobs}
	}
	if g.Key != "" && s.keptKeys() >= quota.Keys && s.bug != "the quota is not checked" {
		return Stored{Status: TooManyKeys}
	}
	if len(q.Jobs) == 0 && int64(len(s.Queues)) >= quota.Queues {
		return Stored{Status: TooManyQueues}
	}
	return Stored{StoredNow, 0, count}
}

// KeyKept is how long each key is kept, ms.
const KeyKept = 3600_000

// keptKeys is how many keys count.
func (s *Shard) keptKeys() (n int64) {
	for at, keys := range s.Keys {
		if at*1000 > s.now() {
			n += keys
		}
	}
	return n
}

// over is the expired job whose caller's id a group takes, 0 without one.
func (s *Shard) over(g Publish) int64 {
	old, known := s.queue(g.Queue).IDs[g.CallerID]
	if !known || s.queue(g.Queue).Jobs[old] == nil || s.exists(Ref{g.Queue, old}) || s.bug == "an expired job outlives its caller's id" {
		return 0
	}
	return old
}

// store writes the jobs of a group and says how many of them are ready.
func (s *Shard) store(g Publish, first int64) (ready int) {
	q := s.queue(g.Queue)
	if len(q.Jobs) == 0 {
		s.Queues[g.Queue] = s.now() + HeadCheck
		if g.Ends > 0 {
			s.Queues[g.Queue] = min(s.Queues[g.Queue], g.Ends)
		}
	}
	for i, payload := range g.Payloads {
		seq := first + int64(i)
		q.Jobs[seq] = &Job{seq, g.Ends, g.Tries, g.CallerID, g.Attributes, payload}
		if g.Delay > 0 {
			s.Delay[Ref{g.Queue, seq}] = float64(s.now() + g.Delay)
		} else {
			q.Ready = append(q.Ready, seq)
			ready++
		}
	}
	if g.CallerID != "" {
		q.IDs[g.CallerID] = first
	}
	s.Ledger["published"] += int64(len(g.Payloads))
	return ready
}
