package operate

import (
	"cmp"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/cmd/spillway/human"
)

// derived are the cells that are made of more than one part of a line, or written otherwise.
var derived = map[string]func(line gjson.Result) string{
	"at": func(line gjson.Result) string {
		return time.UnixMilli(line.Get("at_ms").Int()).UTC().Format("2006-01-02T15:04:05.000Z")
	},
	"paused_by": func(queue gjson.Result) string {
		var of admin.QueueRow
		if _ = json.Unmarshal([]byte(queue.Raw), &of); of.Paused == nil { // it was JSON
			return ""
		}
		return of.Paused.Text(time.Now().UnixMilli())
	},
	"no_jobs": func(queue gjson.Result) string {
		var of admin.QueueRow
		if _ = json.Unmarshal([]byte(queue.Raw), &of); !of.None() { // it was JSON
			return ""
		}
		return "the queue has no jobs: spillway jobs ls NAMESPACE has those that do"
	},
	"memory":         func(line gjson.Result) string { return fmt.Sprintf("%d MiB", line.Get("memory").Int()>>20) },
	"outcome":        outcome,
	"why":            why,
	"delivery":       delivery,
	"left_alone":     leftAlone,
	"counted":        counted,
	"data":           data,
	"happened":       happened,
	"state_since":    stateSince,
	"sink_state":     sinkState,
	"delivery_state": deliveryState,
	"fill_percent":   func(row gjson.Result) string { return fmt.Sprintf("%.0f%%", row.Get("fill").Float()*100) },
	"delayed_now":    func(queue gjson.Result) string { return cmp.Or(queue.Get("delayed").String(), "?") },
	"leased_now": func(queue gjson.Result) string {
		return cmp.Or(queue.Get("leased").String(), "? of "+queue.Get("pending").String())
	},
	"since_or_until": func(line gjson.Result) string {
		for _, at := range []string{"due_ms", "deadline_ms", "died_ms", "acked_ms"} {
			if ms := line.Get(at).Int(); ms != 0 {
				return clock(ms)
			}
		}
		return clock(line.Get("published_ms").Int())
	},
	"error_or_progress": func(line gjson.Result) string {
		return cmp.Or(line.Get("error").String(), progressText(line), line.Get("reason").String())
	},
	"attempts":      attemptText,
	"attempt_of":    func(line gjson.Result) string { return attemptOf(line, false) },
	"next_attempt":  func(line gjson.Result) string { return attemptOf(line, true) },
	"progress_note": progressText,
	"published_since": func(line gjson.Result) string {
		return clock(line.Get("published_at_ms").Int()) + ", " + human.Since(line.Get("age_ms").Int()) + " ago"
	},
	"expires": expires,
	"made": func(line gjson.Result) string {
		if line.Get("from_file").Bool() {
			return "in the file"
		}
		return time.UnixMilli(line.Get("created_at_ms").Int()).UTC().Format("2006-01-02")
	},
	"requests": func(line gjson.Result) string {
		l := line.Get("limit")
		if !l.IsObject() {
			return ""
		}
		return fmt.Sprintf("read %d, write %d in %ds", l.Get("read").Int(), l.Get("write").Int(), l.Get("interval").Int())
	},
	"stored": func(line gjson.Result) string {
		if line.Get("readable").Bool() {
			return "text"
		}
		return "hash"
	},
}

// scoped names the namespace that an act was on, or a part of it.
func scoped(line gjson.Result, path map[string]string) string {
	part := cmp.Or(line.Get("partition").String(), line.Get("queue").String(), path["part"], path["partition"])
	return cmp.Or(scope(cmp.Or(line.Get("namespace").String(), path["namespace"]), part), "-")
}

func outcome(act gjson.Result) string {
	if act.Get("result").String() == "ok" {
		return "ok"
	}
	return "failed"
}

// why is an error, of several lines for a reload, or the detail of an act.
func why(act gjson.Result) string {
	if outcome(act) == "failed" {
		return strings.ReplaceAll(act.Get("result").String(), "\n", "; ")
	}
	return act.Get("detail").String()
}

func delivery(of gjson.Result) string {
	var answer admin.PauseState
	_ = json.Unmarshal([]byte(of.Raw), &answer) // it was JSON
	text := "was not paused"
	switch {
	case answer.Paused != nil:
		if text = "is " + answer.Paused.Text(time.Now().UnixMilli()); answer.Empty {
			text += "; it has no entries or jobs now, a pause waits for its first one"
		}
	case answer.Was:
		text = "is not paused"
	}
	return text
}

func leftAlone(purged gjson.Result) string {
	n := purged.Get("leased").Int()
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %s being delivered, left alone", human.Some(n, "partition is", "partitions are"))
}

// counted says how many dead letters there are, and how many of them are listed or counted by cause.
func counted(list gjson.Result) string {
	looked := list.Get("looked")
	switch {
	case !looked.Exists():
		return fmt.Sprintf(
			"%d of %s",
			list.Get("jobs.#").Int()+list.Get("letters.#").Int(),
			human.Some(list.Get("total").Int(), "dead letter", "dead letters"),
		)
	case !list.Get("complete").Bool():
		return fmt.Sprintf("of %d dead letters; there are more", looked.Int())
	}
	return "of " + human.Some(looked.Int(), "dead letter", "dead letters")
}

func data(line gjson.Result) string {
	var shown admin.Shown
	_ = json.Unmarshal([]byte(line.Raw), &shown) // it was JSON
	return body(&shown)
}

// happened are the details of an event of a trace.
func happened(event gjson.Result) string {
	var details []string
	if sink := event.Get("sink").String(); sink != "" {
		details = append(details, sink, event.Get("outcome").String(), "in "+human.Since(event.Get("ms").Int()))
	}
	if status := event.Get("status").Int(); status > 0 {
		details = append(details, "with "+digits(status))
	}
	return strings.Join(append(details, cmp.Or(event.Get("error").String(), event.Get("reason").String())), " ")
}

func stateSince(line gjson.Result) string {
	text := line.Get("state").String()
	if words, ok := map[string]string{"delayed": "delayed until ",
		"prepared": "prepared until ", "leased": "leased until ", "dead": "dead since ", "acked": "acked at "}[text]; ok {
		text = words + clock(line.Get("at_ms").Int())
	}
	if reason := line.Get("reason").String(); reason != "" {
		text += ", " + reason
	}
	return text
}

// attemptOf is the attempt that a job is at, or the next one where it waits; "" where the other is.
func attemptOf(line gjson.Result, next bool) string {
	if waits(line.Get("state").String()) != next {
		return ""
	}
	return attemptText(line)
}

// expires is when a job does, unless it has no ttl any more.
func expires(line gjson.Result) string {
	state, at := line.Get("state").String(), line.Get("expires_at_ms").Int()
	switch {
	case state == "dead", state == "acked":
		return ""
	case at > 0:
		return clock(at)
	}
	return "never"
}
