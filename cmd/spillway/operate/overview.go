package operate

import (
	"bytes"
	"cmp"
	"encoding/json"
	"slices"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
)

const (
	bufferColumns = "NAMESPACE ${namespace}|>ACCEPTED/s ${rates.accepted}|>DELIVERED/s ${rates.delivered}|" +
		">DROPPED/s ${rates.evicted+rates.expired+rates.dead+rates.lost}|>DROPPED ${ledger.evicted+ledger.expired+ledger.dead+ledger.lost}|" +
		">REJECTED/s ${rates.rejected}|>BACKLOG ${buffered}|>OLDEST ${oldest_age_ms}|>LIMIT ${max_age_ms}|>PARTITIONS ${partitions}|" +
		">DEAD LETTERS ${dead_letters}|SINK ${sink_state}"
	queuesColumns = "NAMESPACE ${namespace}|>PUBLISHED/s ${rates.published}|>ACKED/s ${rates.acked}|" +
		">FAILED/s ${rates.expired+rates.lost+rates.died}|>LOST ${ledger.lost}|>READY ${ledger.ready}|>DELAYED ${ledger.prepared+ledger.delayed}|" +
		">LEASED ${ledger.leased}|>DEAD ${ledger.dead}|>OLDEST READY ${oldest_ready_age_ms}|>QUEUES ${queues}|SINK ${sink_state}"
)

// tablesOf has a table of the namespaces of each kind that there are in an overview.
func tablesOf(overview json.RawMessage) (lines []string) {
	buffers, queues := troubled(overview, "namespaces"), troubled(overview, "queues")
	if len(buffers) > 0 || len(queues) == 0 {
		lines = names(nil).table(bufferColumns, buffers).lines()
	}
	if len(queues) > 0 {
		if lines != nil {
			lines = append(lines, "")
		}
		lines = append(lines, names(nil).table(queuesColumns, queues).lines()...)
	}
	return lines
}

// troubled are the namespaces of a kind by what was found of them, the worst first.
func troubled(overview json.RawMessage, kind string) []gjson.Result {
	ranks := map[string]int{}
	for _, f := range gjson.GetBytes(overview, "findings.findings").Array() {
		name := f.Get("namespace").String()
		ranks[name] = max(ranks[name], admin.Level(f.Get("level").String()).Rank())
	}
	list := gjson.GetBytes(overview, kind).Array()
	slices.SortStableFunc(list, func(a, b gjson.Result) int {
		return cmp.Compare(ranks[b.Get("namespace").String()], ranks[a.Get("namespace").String()])
	})
	return list
}

// sinkState is "paused", or the state of a sink that fails, or else of any.
func sinkState(namespace gjson.Result) string {
	var of admin.NamespaceOverview
	_ = json.Unmarshal([]byte(namespace.Raw), &of) // it was JSON
	switch failing := slices.IndexFunc(of.Sinks, admin.Sink.Fails); {
	case of.Paused != nil:
		return "paused"
	case failing >= 0:
		return of.Sinks[failing].State
	case len(of.Sinks) > 0:
		return of.Sinks[0].State
	}
	return ""
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
