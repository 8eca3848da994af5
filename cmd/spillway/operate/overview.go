package operate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

// The answers of the admin API, as the commands read them. Rates are float64 here: as
// float32 they would round to another decimal.

func pauseText(p *admin.Pause, now int64) string {
	text := fmt.Sprintf("paused (by %s, %s ago)", escape(p.By), since(now-p.SinceMS))
	if p.Reason != "" {
		text += ": " + escape(p.Reason)
	}
	return text
}

func fails(s *admin.Sink) bool {
	return s.State == "failing" || s.State == "tripped" || s.State == "opening" && s.LastError != ""
}

func failureText(s *admin.Sink, now int64) string {
	text := fmt.Sprintf("sink %s fails", escape(s.Label))
	if s.FailingSinceMS != nil {
		text = fmt.Sprintf("sink %s fails for %s", escape(s.Label), since(now-*s.FailingSinceMS))
	}
	if s.LastError != "" {
		text += ": " + escape(s.LastError)
	}
	return text
}

type rates struct {
	Accepted       float64 `json:"accepted"`
	Delivered      float64 `json:"delivered"`
	Evicted        float64 `json:"evicted"`
	Expired        float64 `json:"expired"`
	Dead           float64 `json:"dead"`
	Lost           float64 `json:"lost"`
	LettersEvicted float64 `json:"dead_letters_evicted"`
	Rejected       float64 `json:"rejected"`
}

// dropped is what was accepted and is not delivered, a second. Nobody asked for
// it, so a purge does not count.
func (r *rates) dropped() float64 { return r.Evicted + r.Expired + r.Dead + r.Lost }

// lost is what nobody can get back, a second. Dead letters are kept, at first.
func (r *rates) lost() float64 { return r.Evicted + r.Expired + r.Lost + r.LettersEvicted }

type namespaceState struct {
	admin.NamespaceOverview
	Rates rates `json:"rates"`
}

// ageShare is the age of the oldest entry as a share of max_age, 0 if unknown.
func (n *namespaceState) ageShare() float64 {
	if n.OldestAgeMS == nil || n.MaxAgeMS <= 0 {
		return 0
	}
	return float64(*n.OldestAgeMS) / float64(n.MaxAgeMS)
}

type overview struct {
	admin.Overview
	Namespaces []namespaceState `json:"namespaces"`
	Queues     []queueState     `json:"queues"`
}

type partitionRow struct {
	admin.PartitionRow
	Namespace   string  `json:"namespace"` // ours: the answer is of one namespace
	OldestAgeMS *int64  `json:"oldest_age_ms"`
	InPerS      float64 `json:"in_per_s"`
	OutPerS     float64 `json:"out_per_s"`
	EvictedPerS float64 `json:"evicted_per_s"`
	ExpiredPerS float64 `json:"expired_per_s"`
	raw         json.RawMessage
	empty       bool // a pause that waits for the first entry
}

type partitionList struct {
	admin.PartitionList
	Partitions []json.RawMessage `json:"partitions"`
}

// body is the payload on one line.
func body(p *admin.Shown) string {
	text := ""
	switch {
	case p.Data != nil:
		text = compact(p.Data)
	case p.Text != "":
		text = p.Text
	case p.Base64 != "":
		text = "base64:" + p.Base64
	}
	if p.Cut {
		text += " … (cut)"
	}
	return text
}

func compact(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Compact(&b, raw); err != nil {
		return string(raw)
	}
	return b.String()
}

// loss says what happens to the entries or jobs of one namespace that should not.
type loss struct {
	Namespace string  `json:"namespace"` // empty: of the whole service
	Kind      string  `json:"kind"`      // losing, rejecting, at_risk or store
	PerSecond float64 `json:"per_second,omitempty"`
	What      string  `json:"what"`
	Why       string  `json:"why,omitempty"`
}

// Kinds, the worst first.
const (
	kindStore     = "store"
	kindLosing    = "losing"
	kindRejecting = "rejecting"
	kindAtRisk    = "at_risk"
)

// riskShare of max_age is when entries are near the end of their time, as in the console and the alerts.
const riskShare = 0.7

// fullShare of max_jobs is when a queue is about to reject jobs.
const fullShare = 0.8

const (
	storeFull = "the store's memory is full: what clients send is rejected with store_full; what is stored is still delivered, which makes room"
	seePools  = "see /readyz of the admin port, which names pools that are away"
)

// full reports whether the store takes nothing new.
func (o *overview) full() bool { return slices.Contains(o.Store.Degraded, "store_full") }

// warnings name the servers, so the pools, that they are about.
func (o *overview) warnings() string { return escape(strings.Join(o.Store.Warnings, "; ")) }

// losses answers: is data being lost, whose, and why. The worst is first.
func (o *overview) losses() []loss {
	found := []loss{}
	if !o.Store.Ready {
		found = append(found, loss{
			Kind: kindStore,
			What: "the store is not ready: what clients send is rejected, nothing is delivered",
			Why:  escape(o.Store.Error),
		})
	}
	if o.full() {
		found = append(found, loss{Kind: kindRejecting, What: storeFull, Why: o.warnings()})
	}
	for _, n := range o.Namespaces {
		if o.Store.Ready && stale(n.ReadAtMS, o.NowMS) { // else the store's line says it
			found = append(found, loss{n.Namespace, kindRejecting, 0, unread(n.ReadAtMS,
				o.NowMS), seePools})
			continue
		}
		why := n.cause(o.NowMS)
		if d := n.Rates.lost(); d > 0 {
			found = append(found, loss{n.Namespace, kindLosing, n.Rates.dropped(), n.dropText() + n.maker(),
				cmp.Or(why, n.likely())})
		} else if n.Rates.Dead > 0 {
			found = append(found, loss{n.Namespace, kindAtRisk, n.Rates.Dead, n.dropText() + n.maker(),
				cmp.Or(why, n.likely())})
		} else if why != "" && n.Buffered > 0 || n.ageShare() >= riskShare {
			what := fmt.Sprintf("%s wait", some(n.Buffered, "entry", "entries"))
			if n.Buffered == 1 {
				what += "s"
			}
			if n.OldestAgeMS != nil {
				what += fmt.Sprintf(", the oldest for %s of %s", since(*n.OldestAgeMS),
					since(n.MaxAgeMS))
			}
			found = append(found, loss{n.Namespace, kindAtRisk, 0, what, why})
		}
		if n.Rates.Rejected > 0 {
			found = append(found, loss{n.Namespace, kindRejecting, n.Rates.Rejected,
				"rejected " + perSecond(n.Rates.Rejected) + n.makerOf(worst(n.Rejected)), n.codes()})
		}
	}
	for _, q := range o.Queues {
		if o.Store.Ready && stale(q.ReadAtMS, o.NowMS) {
			found = append(found, loss{q.Namespace, kindRejecting, 0, unread(q.ReadAtMS,
				o.NowMS), seePools})
			continue
		}
		found = append(found, q.losses(o.NowMS)...)
	}
	order := []string{kindStore, kindLosing, kindRejecting, kindAtRisk}
	slices.SortStableFunc(found, func(a, b loss) int {
		whole := cmp.Compare(min(1, len(a.Namespace)), min(1, len(b.Namespace))) // of the service before those of a namespace
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), whole,
			cmp.Compare(b.PerSecond, a.PerSecond))
	})
	return found
}

func (n *namespaceState) dropText() string {
	return n.Rates.dropText(n.MaxAgeMS, perSecond)
}

// worst is the reason with the highest rate; "": none.
func worst(rates map[string]float64) (reason string) {
	for r, n := range rates {
		if n > rates[reason] || n == rates[reason] && n > 0 && r < reason {
			reason = r
		}
	}
	return reason
}

// worst is why most is dropped.
func (r *rates) worst() string {
	return worst(map[string]float64{"evicted": r.Evicted, "expired": r.Expired, "dead": r.Dead, "lost": r.Lost})
}

// maker names the partition that most of what is dropped belongs to.
func (n *namespaceState) maker() string { return n.makerOf(n.Rates.worst()) }

func (n *namespaceState) makerOf(reason string) string {
	m, known := n.Makers[reason]
	if !known {
		return ""
	}
	return fmt.Sprintf("; of %s, %.0f%% in partition %s", reason, m.Share*100, escape(m.Partition))
}

// dropText names each reason with its figure.
func (r *rates) dropText(maxAgeMS int64, figure func(float64) string) string {
	return reasons(figure, []reason{
		{r.Evicted, "evicted %s (partitions are full)"}, {r.Expired,
			"expired %s (older than " + since(maxAgeMS) + ")"},
		{r.Dead, "dead %s (the sink rejects them; dead letters are kept)"},
		{r.LettersEvicted, "dead letters dropped %s (more than max_dead or max_dead_bytes)"}, {r.Lost, "lost %s (removed from Redis, not by Spillway)"},
	})
}

// reason is how many ended in a way, and the words for it.
type reason struct {
	value float64
	what  string
}

// reasons names those that there are.
func reasons(figure func(float64) string, list []reason) string {
	var parts []string
	for _, r := range list {
		if r.value > 0 {
			parts = append(parts, strings.Replace(r.what, "%s", figure(r.value), 1))
		}
	}
	return strings.Join(parts, ", ")
}

func perSecond(n float64) string { return rate(n) + "/s" }

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
	case n.Makers[r.worst()].Cause != "":
		return n.Makers[r.worst()].Cause
	case n.PausedPartitions > 0 && r.Evicted+r.Expired > 0:
		return some(n.PausedPartitions, "partition is",
			"partitions are") + " paused: see spillway ls --paused"
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
	var list []reason
	for code, rejected := range n.Rejected {
		list = append(list, reason{rejected, escape(code) + " %s"})
	}
	slices.SortFunc(list, func(a, b reason) int {
		return cmp.Or(cmp.Compare(b.value, a.value),
			cmp.Compare(a.what, b.what))
	})
	return reasons(perSecond, list)
}

// headlines are by the worst kind.
var headlines = map[string]string{
	kindStore:     "THE STORE IS NOT READY",
	kindLosing:    "DATA IS BEING LOST",
	kindRejecting: "ENTRIES OR JOBS ARE REJECTED; the clients are told",
	kindAtRisk:    "NO DATA IS BEING LOST, BUT IT IS AT RISK",
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

// staleMS is when a ledger, which is read every second, says that its Redis does not answer.
const staleMS = 15_000

func stale(readAt, now int64) bool { return now-readAt > staleMS }

// unread says that the figures of a namespace are old.
func unread(readAt, now int64) string {
	if readAt == 0 {
		return "its Redis has not answered yet: what clients send is rejected"
	}
	return "its Redis has not answered for " + since(now-readAt) +
		": what clients send is rejected, and these figures are old"
}

// trouble orders what needs a person before what does not: what is lost, rejected or dead, not delivered.
func (n *namespaceState) trouble(o *overview) int {
	switch {
	case n.Rates.lost() > 0:
		return 3
	case n.Rates.Dead+n.Rates.Rejected > 0:
		return 2
	case n.cause(o.NowMS) != "", stale(n.ReadAtMS, o.NowMS):
		return 1
	}
	return 0
}
