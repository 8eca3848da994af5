package ingest

import (
	"cmp"
	"errors"
	"slices"

	"github.com/valyala/fasthttp"

	"github.com/spillway-io/spillway/ingest/transport"
	"github.com/spillway-io/spillway/ingest/wire"
)

// answer says what became of a request that has all its results.
func (s *Server) answer(ctx *fasthttp.RequestCtx, r *request) *rejection {
	stored := r.sumResults()
	if len(r.spans) > 0 && stored == 0 {
		return rejectParts(r)
	}
	a := &r.answer
	a.Depth, a.Capacity = wire.Absent, wire.Absent
	if len(r.name) > 0 { // one partition
		a.Capacity = r.namespace.Policy.Capacity
		for i := range r.parts {
			if p := &r.parts[i]; p.count > 0 && p.err == nil {
				a.Depth = p.depth
			}
		}
	}
	s.countDiscards(r)
	if r.minimal && a.Rejected == 0 && a.Evicted == 0 && len(a.Results) == 0 {
		ctx.SetStatusCode(fasthttp.StatusNoContent)
		return nil
	}
	r.out = a.Append(r.out[:0])
	ctx.Response.Header.SetContentType(jsonType)
	if transport.Send(ctx, r.Account(), r.out) {
		r.out = nil
	}
	return nil
}

// sumResults adds the results of the parts up in the answer. Entries of a failed
// part are to be retried. It returns how many parts were stored.
func (r *request) sumResults() (stored int) {
	failed := false
	for i := range r.parts {
		p := &r.parts[i]
		if p.err != nil {
			failed = true
			r.answer.Rejected += p.count
			continue
		}
		stored++
		r.answer.Accepted += p.accepted
		r.answer.Evicted += p.evicted
	}
	if failed {
		r.addRetries()
	}
	return stored
}

// addRetries adds a result for each entry of a failed part. Results are in the
// order of the request, and a retry replaces a warning about the same entry.
func (r *request) addRetries() {
	for _, s := range r.spans {
		if err := r.parts[s.part].err; err != nil {
			_, reason := codesFor(err)
			r.answer.Results = append(r.answer.Results,
				wire.Result{Index: int(s.index), Disposition: wire.Retry, Reason: reason})
		}
	}
	slices.SortStableFunc(r.answer.Results, func(a, b wire.Result) int {
		if a.Index != b.Index {
			return cmp.Compare(a.Index, b.Index)
		}
		return cmp.Compare(a.Disposition, b.Disposition) // "retry" < "warning"
	})
	r.answer.Results = slices.CompactFunc(r.answer.Results,
		func(a, b wire.Result) bool { return a.Index == b.Index })
}

// rejectParts answers when nothing of a request was stored. The parts' common
// code is the answer. If the entries of a part may be stored, the answer says
// that the outcome is unknown. If the codes differ, it is store_unavailable.
func rejectParts(r *request) (rejected *rejection) {
	defer func() { rejected.Counted = true }()
	code, _ := codesFor(r.parts[0].err)
	ofToken := true
	for i := range r.parts {
		err := r.parts[i].err
		ofToken = ofToken && errors.Is(err, errNewPartitions)
		other, reason := codesFor(err)
		if reason == wire.ReasonUnknown {
			return rejectUnknown(err)
		}
		if other != code {
			code = wire.CodeStoreUnavailable
		}
	}
	if ofToken {
		return r.key.rejectNewPartition()
	}
	return reject(code)
}
