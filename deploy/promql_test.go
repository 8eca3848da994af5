package deploy

import (
	"regexp"
	"slices"
	"strings"
)

// A query is what the tests read of a PromQL expression. promtool checks the syntax.
type query struct {
	metrics []string
	groups  []string  // labels in by, without, on, ignoring and group_left
	by      []string  // labels in by alone
	match   []matcher // of all selectors
}

type matcher struct {
	metric, label string
	values        []string // none for what a variable of the dashboard or a pattern leaves open
}

var (
	variablePattern = regexp.MustCompile(`\$\{?\w+\}?`)
	selectorPattern = regexp.MustCompile(`([a-zA-Z_:][\w:]*)\s*\{([^}]*)\}`)
	matcherPattern  = regexp.MustCompile(`(\w+)\s*(?:=~|!~|!=|=)\s*"([^"]*)"`)
	groupingPattern = regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)`)
	namePattern     = regexp.MustCompile(`[a-zA-Z_:][\w:]*\s*\(?`)
	keywords        = []string{"and", "or", "unless", "bool", "offset", "group_left", "group_right"}
)

// parseQuery splits an expression into its names.
func parseQuery(expr string) query {
	var q query
	expr = regexp.MustCompile(`\[[^\]]*\]|offset \w+`).ReplaceAllString(expr, "") // spans
	expr = selectorPattern.ReplaceAllStringFunc(expr, func(selector string) string {
		parts := selectorPattern.FindStringSubmatch(selector)
		for _, m := range matcherPattern.FindAllStringSubmatch(parts[2], -1) {
			next := matcher{metric: parts[1], label: m[1]}
			if !variablePattern.MatchString(m[2]) && !strings.Contains(m[2], ".*") {
				next.values = strings.Split(m[2], "|")
			}
			q.match = append(q.match, next)
		}
		return parts[1]
	})
	expr = groupingPattern.ReplaceAllStringFunc(expr, func(grouping string) string {
		parts := groupingPattern.FindStringSubmatch(grouping)
		for label := range strings.SplitSeq(parts[2], ",") {
			if label = strings.TrimSpace(label); label == "" {
				continue
			}
			q.groups = append(q.groups, label)
			if parts[1] == "by" {
				q.by = append(q.by, label)
			}
		}
		return ""
	})
	for _, name := range namePattern.FindAllString(variablePattern.ReplaceAllString(expr, ""), -1) {
		name = strings.TrimSpace(name)
		// A bracket may follow the name of a function, an aggregation or a keyword only.
		if !strings.HasSuffix(name, "(") && !slices.Contains(keywords, name) && !slices.Contains(aggregations, name) {
			q.metrics = append(q.metrics, name)
		}
	}
	slices.Sort(q.metrics)
	q.metrics = slices.Compact(q.metrics)
	return q
}

// aggregations stand without a bracket once their grouping is cut out: "sum by (a) (b)".
var aggregations = []string{"sum", "max", "min", "avg", "count"}
