// Package share divides what all tenants of a process use: memory, places and turns. It has
// one rule in three forms. Each tenant has a share, a share that nobody uses may be borrowed,
// and who borrowed it makes room at the end of the work that it has in hand.
//
//   - Account: memory. A tenant may hold at most Greed times what is left for all others.
//   - Turns: places, held for a moment. A tenant leaves one of them to others, and who waits
//     is served tenant by tenant.
//   - Queue: the turns of a lane, by what was served before.
//
// A tenant is a namespace. Requests whose namespace is not known yet, and operators, are
// tenants of their own.
package share

import "sync/atomic"

// Greed is how much of a budget one tenant may hold, as a multiple of what it leaves: alone
// it gets four fifths, and two that want all of it get four ninths each. The rule is the
// dynamic threshold of shared-memory switches (Choudhury, Hahne: Dynamic Queue Length
// Thresholds, 1998): it needs no list of tenants, and nothing is taken from anybody.
const Greed = 4

// An Account counts what one tenant holds of a budget, or all tenants together. Its methods
// may be called concurrently.
type Account struct {
	parent  *Account
	limit   int64 // of a budget, which has no parent
	used    atomic.Int64
	divided atomic.Bool // its children have shares of it
}

// NewBudget makes the account of all tenants: together they may hold limit.
func NewBudget(limit int64) *Account {
	a := &Account{limit: limit}
	a.divided.Store(true)
	return a
}

// Tenant makes the account of a tenant of a, or of a part of a tenant such as a token.
func (a *Account) Tenant() *Account { return &Account{parent: a} }

// Divide says whether the parts of a tenant have shares of what it may hold; default false.
func (a *Account) Divide(parts bool) { a.divided.Store(parts) }

// Used is what is held.
func (a *Account) Used() int64 { return a.used.Load() }

// Limit is what all tenants of the budget may hold.
func (a *Account) Limit() int64 {
	if a.parent != nil {
		return a.parent.Limit()
	}
	return a.limit
}

// Take takes n more for a user that holds own already, or nothing and returns false. The
// only user of a tenant may have all that is left: a share never makes a single request
// impossible.
func (a *Account) Take(n, own int64) bool {
	if a.add(n, own+n) >= 0 || n <= 0 {
		return true
	}
	a.Give(n)
	return false
}

// Give gives n back.
func (a *Account) Give(n int64) {
	for ; a != nil; a = a.parent {
		a.used.Add(-n)
	}
}

// add counts n and returns how much more a may take; below 0: it has too much. own is what
// the user holds then.
func (a *Account) add(n, own int64) int64 {
	used := a.used.Add(n)
	if a.parent == nil {
		return a.limit - used
	}
	left := a.parent.add(n, own)
	if left < 0 || used == own || !a.parent.divided.Load() {
		return left
	}
	if left = Greed*left - used; left > 0 {
		left /= Greed + 1 // what it takes, the others cannot have
	}
	return left
}
