package partition

import "context"

// Describe reads several partitions, by calls of up to 200 of a shard. Those without
// entries are left out, and the order is not that of the names. Errors: ErrTooManyReads
// where no read slot is free within 1s, and those of the store.
func (s *Store) Describe(ctx context.Context, ns *Namespace, names []string) (list []Stats, err error) {
	byShard := map[int][]string{}
	for _, name := range names {
		at := ns.ShardOf(name)
		byShard[at] = append(byShard[at], name)
	}
	err = s.ledgerReads.Do(ctx, func() error {
		for at, names := range byShard {
			for len(names) > 0 {
				n := min(len(names), maxCallStats)
				some, err := s.describe(ctx, ns, &ns.shards[at], names[:n])
				if err != nil {
					return err
				}
				list, names = append(list, some...), names[n:]
			}
		}
		return nil
	})
	return list, err
}
