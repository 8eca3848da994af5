package operate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// loss says what happens to the entries or jobs of one namespace that should not.
type loss struct {
	Namespace string  `json:"namespace"` // empty: of the whole service
	Kind      string  `json:"kind"`      // losing, refusing, at_risk or store
	PerSecond float64 `json:"per_second,omitempty"`
	What      string  `json:"what"`
	Why       string  `json:"why,omitempty"`
}

// Kinds, the worst first.
const (
	kindStore    = "store"
	kindLosing   = "losing"
	kindRefusing = "refusing"
	kindAtRisk   = "at_risk"
)

// riskShare of max_age is when entries are near the end of their time.
const riskShare = 0.8

const (
	storeFull = "the store's memory is full: what clients send is refused with store_full; what is stored is still delivered, which makes room"
	seePools  = "see /readyz of the admin port, which names pools that are away"
)

// full reports whether the store takes nothing new.
func (o *overview) full() bool { return slices.Contains(o.Store.Degraded, "store_full") }

// losses answers: is data being lost, whose, and why. The worst is first.
func (o *overview) losses() []loss {
	found := []loss{}
	if !o.Store.Ready {
		found = append(found, loss{Kind: kindStore, What: "the store is not ready: what clients send is refused, nothing is delivered", Why: escape(o.Store.Error)})
	}
	if o.full() {
		found = append(found, loss{Kind: kindRefusing, What: storeFull, Why: escape(strings.Join(o.Store.Warnings, "; "))})
	}
	for _, n := range o.Namespaces {
		if o.Store.Ready && stale(n.ReadAtMS, o.NowMS) { // else the store's line says it
			found = append(found, loss{n.Namespace, kindRefusing, 0, unread(n.ReadAtMS, o.NowMS), seePools})
			continue
		}
		why := n.cause(o.NowMS)
		if d := n.Rates.lost(); d > 0 {
			found = append(found, loss{n.Namespace, kindLosing, n.Rates.dropped(), n.dropText(), cmp.Or(why, n.likely())})
		} else if n.Rates.Dead > 0 {
			found = append(found, loss{n.Namespace, kindAtRisk, n.Rates.Dead, n.dropText(), cmp.Or(why, n.likely())})
		} else if why != "" && n.Buffered > 0 || n.ageShare() >= riskShare {
			what := fmt.Sprintf("%s wait", some(n.Buffered, "entry", "entries"))
			if n.Buffered == 1 {
				what += "s"
			}
			if n.OldestAgeMS != nil {
				what += fmt.Sprintf(", the oldest for %s of %s", since(*n.OldestAgeMS), since(n.MaxAgeMS))
			}
			found = append(found, loss{n.Namespace, kindAtRisk, 0, what, why})
		}
		if n.Rates.Rejected > 0 {
			found = append(found, loss{n.Namespace, kindRefusing, n.Rates.Rejected, "refused " + rate(n.Rates.Rejected) + "/s", n.codes()})
		}
	}
	for _, q := range o.Queues {
		if o.Store.Ready && stale(q.ReadAtMS, o.NowMS) {
			found = append(found, loss{q.Namespace, kindRefusing, 0, unread(q.ReadAtMS, o.NowMS), seePools})
			continue
		}
		found = append(found, q.losses(o.NowMS)...)
	}
	order := []string{kindStore, kindLosing, kindRefusing, kindAtRisk}
	slices.SortStableFunc(found, func(a, b loss) int {
		whole := cmp.Compare(min(1, len(a.Namespace)), min(1, len(b.Namespace))) // of the service before those of a namespace
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), whole, cmp.Compare(b.PerSecond, a.PerSecond))
	})
	return found
}

func (n *namespaceState) dropText() string {
	return n.Rates.dropText(n.MaxAgeMS, func(perSecond float64) string { return rate(perSecond) + "/s" })
}

// dropText names each reason with its figure.
func (r *rates) dropText(maxAgeMS int64, figure func(float64) string) string {
	var parts []string
	add := func(value float64, what string) {
		if value > 0 {
			parts = append(parts, fmt.Sprintf(what, figure(value)))
		}
	}
	add(r.Evicted, "evicted %s (partitions are full)")
	add(r.Expired, "expired %s (older than "+since(maxAgeMS)+")")
	add(r.Dead, "dead %s (the sink rejects them; dead letters are kept)")
	add(r.LettersEvicted, "dead letters dropped %s (more than max_dead or max_dead_bytes)")
	add(r.Lost, "lost %s (removed from Redis, not by Spillway)")
	return strings.Join(parts, ", ")
}

// cause is why nothing or little is delivered, as far as it is known.
func (n *namespaceState) cause(now int64) string {
	if n.Paused != nil {
		return "delivery is " + pauseText(n.Paused, now)
	}
	for _, s := range n.Sinks {
		if fails(&s) {
			return failureText(&s, now)
		}
	}
	return ""
}

// likely is what usually explains drops when no failure is known.
func (n *namespaceState) likely() string {
	switch r := n.Rates; {
	case n.PausedPartitions > 0 && r.Evicted+r.Expired > 0:
		return some(n.PausedPartitions, "partition is", "partitions are") + " paused: see spillway ls --paused"
	case r.Dead > 0:
		return "see spillway dead ls " + n.Namespace
	case r.Evicted+r.Expired > 0 && len(n.Sinks) == 0:
		return "this process delivers nothing: ask one with the role drain"
	case r.Evicted+r.Expired > 0:
		return "entries come faster than the sink takes them: see spillway ls " + n.Namespace
	}
	return "see spillway drops " + n.Namespace
}

func (n *namespaceState) codes() string {
	codes := slices.SortedFunc(maps.Keys(n.Rejected), func(a, b string) int {
		return cmp.Or(cmp.Compare(n.Rejected[b], n.Rejected[a]), cmp.Compare(a, b))
	})
	var parts []string
	for _, code := range codes {
		if n.Rejected[code] > 0 {
			parts = append(parts, fmt.Sprintf("%s %s/s", escape(code), rate(n.Rejected[code])))
		}
	}
	return strings.Join(parts, ", ")
}

// headlines are by the worst kind.
var headlines = map[string]string{
	kindStore:    "THE STORE IS NOT READY",
	kindLosing:   "DATA IS BEING LOST",
	kindRefusing: "ENTRIES OR JOBS ARE REFUSED; the clients are told",
	kindAtRisk:   "NO DATA IS BEING LOST, BUT IT IS AT RISK",
}

// lossLines is the answer for people.
func lossLines(found []loss) []string {
	headline := "NO DATA IS BEING LOST"
	if len(found) > 0 {
		headline = headlines[found[0].Kind]
	}
	lines := []string{headline}
	for _, l := range found {
		text := "  "
		if l.Namespace != "" {
			text += l.Namespace + ": "
		}
		text += l.What
		if l.Why != "" {
			text += "; " + l.Why
		}
		lines = append(lines, text)
	}
	return lines
}
