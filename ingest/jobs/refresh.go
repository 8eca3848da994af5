package jobs

import "maps"

// Refresh ends the claims that wait with a token that was removed. Claims of a namespace with
// another policy ask again, in the shards where its queues are now. Call it when tokens or
// namespaces have changed.
func (e *Engine) Refresh() {
	e.mu.Lock()
	var moved []*poll
	for p := range e.polls {
		switch {
		case p.Revoked != nil && p.Revoked():
			e.leave(p, ErrRevoked)
		case p.state == waiting && e.store.Namespace(p.ns.Name) != p.ns:
			moved = append(moved, p)
		}
	}
	maps.DeleteFunc(e.large, func(namespace string, _ bool) bool { return e.store.Namespace(namespace) == nil })
	maps.DeleteFunc(e.took, func(namespace string, _ int) bool { return e.store.Namespace(namespace) == nil })
	e.mu.Unlock()
	for _, p := range moved {
		e.replan(p)
	}
}

// replan lets a poll that waits ask again, under the present policy of its namespace.
func (e *Engine) replan(p *poll) {
	e.mu.Lock()
	now := e.store.Namespace(p.ns.Name)
	if p.state != waiting || now == p.ns {
		e.mu.Unlock()
		return
	}
	if now == nil {
		e.leave(p, ErrNoNamespace)
		e.mu.Unlock()
		return
	}
	empty := e.part(p)
	p.ns = now
	e.plan(p)
	fresh := e.join(p)
	p.looked = false
	p.state = asking // it does not end, so its rooms are not unwanted before they are wanted
	e.mu.Unlock()
	e.want(fresh)
	e.unwant(empty)
	e.mu.Lock()
	defer e.mu.Unlock()
	e.ask(p)
}
