package phpmodel

// What PHP does, command by command.

// phpMigrate moves what is due by PHP's clock, in s, as think-queue's transaction and
// Laravel's script do.
func (q *Queue) phpMigrate(set string, clock int64) {
	from := q.setOf(set)
	all := due(from, clock*1000)
	for _, m := range all {
		delete(from, m)
		if set == "reserved" && q.flavor.onRelease {
			m = counted(m, q.flavor.first)
		}
		q.phpPush(m)
	}
}

func (q *Queue) setOf(name string) map[string]int64 {
	if name == "reserved" {
		return q.reserved
	}
	return q.delayed
}

func (q *Queue) phpPop() (string, bool) {
	if len(q.ready) == 0 {
		return "", false
	}
	p := q.ready[0]
	q.ready = q.ready[1:]
	if q.flavor.notify {
		q.notify = max(0, q.notify-1)
	}
	return p, true
}

// phpAdd is ZADD, with PHP's whole seconds. It tells whether the member was new.
func (q *Queue) phpAdd(set, member string, at int64) bool {
	_, there := q.setOf(set)[member]
	q.setOf(set)[member] = at * 1000
	return !there
}

// phpRemove is ZREM of a reservation.
func (q *Queue) phpRemove(member string) bool {
	_, there := q.reserved[member]
	delete(q.reserved, member)
	return there
}

// phpPush is RPUSH.
func (q *Queue) phpPush(p string) {
	q.ready = append(q.ready, p)
	if q.flavor.notify {
		q.notify++
	}
}
