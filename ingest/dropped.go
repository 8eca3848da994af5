package ingest

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/wire"
	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/drops"
)

// maxSamples bounds the samples that one request keeps of its entries.
const maxSamples = 16

// maxBadName is how much of a wrong name of a partition a sample shows, in bytes.
const maxBadName = 64

// sample keeps what is known of an entry that is dropped. count records it once the
// request has its results, because an entry of a request that is rejected as a whole is
// not counted.
func (r *request) sample(e event, why wire.Reason, age time.Duration) {
	reason := drops.Reason(why)
	if len(r.dropped) == maxSamples || !r.drops.Open(reason) {
		return
	}
	d := drops.Drop{Reason: reason, Entries: 1, Age: age}
	switch {
	case why == wire.ReasonBadPartition:
		d.Detail = strconv.QuoteToASCII(e.partition[:min(len(e.partition), maxBadName)])
	case e.partition != "":
		d.Partition = strings.Clone(e.partition)
	case len(r.name) > 0:
		d.Partition = string(r.name[len(r.namespace.Name)+1:])
	}
	if partition.ValidID(e.id) {
		d.ID = string(e.id)
	}
	r.dropped = append(r.dropped, d)
}

// recordDrops counts the entries that were dropped, and records their samples.
func (r *request) recordDrops(log *drops.Namespace) {
	if log == nil || r.answer.Rejected == 0 {
		return
	}
	var counts [len(rejectionReasons)]int
	for _, e := range r.answer.Results {
		for i, reason := range rejectionReasons {
			if e.Disposition == wire.Drop && e.Reason == reason {
				counts[i]++
			}
		}
	}
	for i, n := range counts {
		reason := drops.Reason(rejectionReasons[i])
		sampled := 0
		for _, d := range r.dropped {
			if d.Reason == reason {
				sampled++
			}
		}
		granted := log.Count(reason, n, sampled)
		for _, d := range r.dropped {
			if d.Reason == reason && granted > 0 {
				granted--
				log.Record(d)
			}
		}
	}
}

// recordDrop counts the entries of a part that failed, and records a sample.
func (p *part) recordDrop(log *drops.Namespace) {
	reason := dropReason(p.err)
	if !log.CountOne(reason, p.count) {
		return
	}
	d := drops.Drop{
		Reason:    reason,
		Partition: p.name[len(p.request.namespace.Name)+1:],
		Entries:   p.count,
		Detail:    p.err.Error(),
	}
	if len(p.entries) == 1 {
		if e, err := partition.ParseEntry(p.entries[0]); err == nil {
			d.ID, d.Age = string(e.ID), time.Duration(max(0, p.request.received-e.Occurred))*time.Millisecond
		}
	}
	log.Record(d)
}

// dropReason says why a part failed.
func dropReason(err error) drops.Reason {
	switch {
	case errors.Is(err, errOverloaded):
		return drops.Overloaded
	case errors.Is(err, errShuttingDown):
		return drops.ShuttingDown
	}
	_, reason := codesFor(err)
	return drops.Reason(reason)
}

// recordDiscard records what a client reports.
func (r *request) recordDiscard(log *drops.Namespace, d wire.Discard) {
	if log.CountOne(drops.ClientDiscarded, int(d.Count)) {
		partition := ""
		if len(r.name) > 0 {
			partition = string(r.name[len(r.namespace.Name)+1:])
		}
		log.Record(drops.Drop{
			Reason:    drops.ClientDiscarded,
			Partition: partition,
			Entries:   int(d.Count),
			Detail:    string(d.Reason),
		})
	}
}

// rejectionDrops are the reasons of requests that are rejected as a whole; of other
// codes it is BadRequest.
var rejectionDrops = map[wire.Code]drops.Reason{
	wire.CodeUnauthorized:      drops.Unauthorized,
	wire.CodeForbidden:         drops.Unauthorized,
	wire.CodeBodyTooLarge:      drops.TooLarge,
	wire.CodeTooManyEntries:    drops.TooLarge,
	wire.CodeEntryTooLarge:     drops.TooLarge,
	wire.CodeBadPartition:      drops.BadPartition,
	wire.CodeTooManyPartitions: drops.TooManyPartitions,
	wire.CodeTooManyKeys:       drops.TooManyKeys,
	wire.CodeRateLimited:       drops.RateLimited,
	wire.CodeOverloaded:        drops.Overloaded,
	wire.CodeShuttingDown:      drops.ShuttingDown,
	wire.CodeStoreUnavailable:  drops.StoreUnavailable,
	wire.CodeStoreFull:         drops.StoreFull,
	wire.CodeInternal:          drops.Unknown,
}

// recordRejection records a request that is rejected as a whole, before its entries
// have results. One whose entries were not counted counts as one entry.
func (s *Server) recordRejection(t *target, r *rejection) {
	ns := t.namespace
	if s.cfg.Drops == nil || ns == nil || r.Counted ||
		t.route.method != fasthttp.MethodPost {
		return
	}
	reason, known := rejectionDrops[r.Code]
	if !known {
		reason = drops.BadRequest
	}
	entries := max(1, r.Entries)
	if log := s.metrics.namespace(ns).drops; log.CountOne(reason, entries) {
		log.Record(drops.Drop{
			Reason:    reason,
			Partition: string(t.partition),
			Entries:   entries,
			Detail:    string(r.Code) + ": " + r.Text(),
		})
	}
}

// Rejected returns how many entries of a namespace this process rejected since its
// start, by reason, for those that have any; nothing without Config.Drops. A request
// that was rejected before its entries were counted counts as one.
func (s *Server) Rejected(namespace string) map[drops.Reason]int64 {
	rejected := make(map[drops.Reason]int64)
	for reason, total := range s.cfg.Drops.Totals(namespace) {
		if reason.Rejection() {
			rejected[reason] = total.Entries
		}
	}
	return rejected
}
