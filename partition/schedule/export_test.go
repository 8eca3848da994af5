package schedule

// Fires is when a tick of a schedule fires.
func (s *Spec) Fires(namespace, queue, name string, tick int64) int64 {
	return s.fires(tick, seedOf(namespace, queue, name))
}
