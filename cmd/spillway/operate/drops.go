package operate

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
)

// reasonTexts say what happened, and what helps.
var reasonTexts = map[string]string{
	"evicted":             "its partition was full, and newer entries took its place: raise capacity, or see why delivery is slow",
	"expired":             "it waited longer than max_age: see why delivery is slow",
	"stale":               "it was older than max_age when it arrived: see the client's clock, or what holds its events up",
	"too_large":           "it is larger than max_entry",
	"bad_ts":              "its time is not usable",
	"bad_id":              "its id is not 1 to 64 printable characters",
	"bad_partition":       "its partition's name is not usable",
	"bad_item":            "it is not in a form that the route takes",
	"filtered":            "a step drop_if of its namespace's transform holds for it",
	"sampled":             "it is not of the share that its namespace's transform keeps",
	"emptied":             "its namespace's transform left nothing of it",
	"unreadable":          "it is no JSON, so its namespace's transform cannot see what has to be taken out of it",
	"bad_request":         "its request cannot be read; the detail is the error code",
	"unauthorized":        "its request had no token of this namespace, or a wrong one",
	"overloaded":          "the service had no memory left for its request; the client may send it again",
	"shutting_down":       "the service was stopping; the client may send it again",
	"too_many_keys":       "its namespace remembers as many idempotency keys as max_keys allows",
	"too_many_partitions": "its namespace has as many partitions as max_partitions allows",
	"rate_limited":        "its token or key sent more than its rate; the client may send it again",
	"dead":                "the sink rejected it: see spillway dead ls",
	"failed":              "it was counted as delivered before its one write, as at-most-once does, and the sink did not accept it",
	"lost":                "something other than Spillway removed it from Redis",
	"purged":              "somebody deleted it: see spillway audit",
	"store_unavailable":   "the store did not answer; the client may send it again",
	"store_full":          "the store has no memory left; the client may send it again",
	"unknown":             "the store's answer was lost; the client sends it again with the same key",
	"client_discarded":    "the client dropped it before it was sent",
}

// explained says what the reasons of a list of drops mean, and how many there are of each reason.
func explained(answer gjson.Result) string {
	texts := map[string]string{}
	for _, d := range answer.Get("drops").Array() {
		reason := d.Get("reason").String()
		texts[reason] = cmp.Or(reasonTexts[reason], "see ingest/API.md")
	}
	lines := []string{""}
	for _, reason := range slices.Sorted(maps.Keys(texts)) {
		lines = append(lines, escape(reason)+": "+texts[reason])
	}
	if len(texts) > 0 {
		lines = append(lines, "")
	}
	var totals []string
	reasons := answer.Get("reasons").Map()
	for _, reason := range slices.Sorted(maps.Keys(reasons)) {
		totals = append(totals, fmt.Sprintf("%s %d", escape(reason), reasons[reason].Get("total").Int()))
	}
	if len(totals) > 0 {
		lines = append(
			lines,
			"Since the process started: "+strings.Join(totals, ", ")+". Of each reason and namespace, the last 128 are sampled.",
		)
	}
	return strings.Join(lines, "\n")
}
