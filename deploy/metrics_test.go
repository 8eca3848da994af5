package deploy

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/lua/redistest"
)

const (
	dashboardFile = "deploy/grafana/spillway.json"
	alertsFile    = "deploy/prometheus/alerts.yaml"
)

// An expression is PromQL in a file of this folder.
type expression struct {
	where, expr string
	legend      string // of a panel
}

// An alert is a rule of alertsFile.
type alert struct {
	Alert, Expr string
	Labels      map[string]string
	Annotations map[string]string
}

func alerts(t *testing.T) []alert {
	t.Helper()
	var file struct {
		Groups []struct{ Rules []alert }
	}
	if err := yaml.Unmarshal([]byte(read(t, alertsFile)), &file); err != nil {
		t.Fatal(err)
	}
	var all []alert
	for _, g := range file.Groups {
		all = append(all, g.Rules...)
	}
	return all
}

// expressions are those of the alerts and of the dashboard.
func expressions(t *testing.T) []expression {
	t.Helper()
	var all []expression
	for _, a := range alerts(t) {
		all = append(all, expression{where: a.Alert, expr: a.Expr})
	}
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr, LegendFormat string }
		}
		Templating struct {
			List []struct {
				Name  string
				Query any
			}
		}
	}
	if err := json.Unmarshal([]byte(read(t, dashboardFile)), &dashboard); err != nil {
		t.Fatal(err)
	}
	for _, p := range dashboard.Panels {
		for _, target := range p.Targets {
			all = append(all, expression{"panel " + p.Title, target.Expr, target.LegendFormat})
		}
	}
	for _, v := range dashboard.Templating.List {
		if query, ok := v.Query.(map[string]any); ok {
			m := regexp.MustCompile(`^label_values\((.*), (\w+)\)$`).FindStringSubmatch(query["query"].(string))
			if m == nil {
				t.Errorf("variable %s: got %v, want label_values(METRIC, LABEL)", v.Name, query)
				continue
			}
			all = append(all, expression{where: "variable " + v.Name, expr: "count by (" + m[2] + ") (" + m[1] + ")"})
		}
	}
	if len(all) < 60 {
		t.Errorf("only %d expressions were found", len(all))
	}
	return all
}

// series are metrics by name, with the values of each label.
type series map[string]map[string][]string

// counted are metrics that are read from the store now and then, so they are not there at once.
var counted = []string{"spillway_account_partitions", "spillway_account_oldest_age_seconds",
	"spillway_account_jobs", "spillway_account_queues",
	"spillway_account_oldest_ready_job_seconds", "spillway_account_schedules",
	"spillway_php_queue_jobs"}

// hashOfOne is the hash of the token "one".
const hashOfOne = "sha256:7692c3ad3540bb803c020b3aee66cd8887123234ea0c6e7143c0add73ff431ed"

// scraped is everySeries, once for all tests.
var scraped struct {
	sync.Mutex
	all series
}

// everySeries scrapes servers that have every part that has metrics.
func everySeries(t *testing.T) series {
	t.Helper()
	scraped.Lock()
	defer scraped.Unlock()
	if scraped.all != nil {
		return scraped.all
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "all.yaml")
	if err := os.WriteFile(file, []byte(`
namespaces:
  default: {sink: "null:", fallback: ["null:"], tokens: [{hash: "`+hashOfOne+`", rate: 1/s, new_partitions: 1/s}]}
  mail: {kind: queue, push: [{sink: crm}]}
  shop: {kind: php, pool: shop, flavor: laravel, queues: [default]}
pools: {shop: "`+redistest.Start(t).URL()+`"}
sinks: {crm: "null:"}
`), 0o600); err != nil {
		t.Fatal(err)
	}
	all := series{}
	n := newcomer{t: t}
	n.serve("--config", file)
	// Some counts are there once they were used.
	n.curl("curl -H 'Authorization: Bearer one' -H 'X-Client-Discards: stale=1' -d 1 http://127.0.0.1:8080/v1/default/any")
	missing := func(name string) bool { return all[name] == nil }
	redistest.Until(t, time.Minute, "everything is counted", func() bool {
		all.add(n.curl("curl http://127.0.0.1:8081/metrics"))
		return !slices.ContainsFunc(counted, missing)
	})
	cert, key := certificate(t, dir)
	n.serve("--config", file, "--tls-cert", cert, "--tls-key", key)
	all.add(n.curl("curl http://127.0.0.1:8081/metrics"))
	scraped.all = all
	return all
}

// add reads the text form of Prometheus.
func (s series) add(text string) {
	for _, m := range regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`).FindAllStringSubmatch(text, -1) {
		labels := s[m[1]]
		if labels == nil {
			labels = map[string][]string{"job": nil, "instance": nil} // those of the target
			s[m[1]] = labels
		}
		for _, l := range matcherPattern.FindAllStringSubmatch(m[2], -1) {
			labels[l[1]] = append(labels[l[1]], l[2])
		}
	}
}

// certificate writes a certificate for the data port, and its key.
func certificate(t *testing.T, dir string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour)}
	public, err := x509.CreateCertificate(rand.Reader, &template, &template, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	write := func(name, kind string, bytes []byte) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: bytes}), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	return write("cert.pem", "CERTIFICATE", public), write("key.pem", "PRIVATE KEY", secret)
}

func TestEveryExpressionNamesMetricsAndLabelsThatExist(t *testing.T) {
	t.Parallel()
	known := everySeries(t)
	for _, e := range expressions(t) {
		q := parseQuery(e.expr)
		if len(q.metrics) == 0 {
			t.Errorf("%s: no metric was found in %s", e.where, e.expr)
		}
		labels := []string{}
		for _, name := range q.metrics {
			if known[name] == nil {
				t.Errorf("%s: there is no metric %s", e.where, name)
			}
			for label := range known[name] {
				labels = append(labels, label)
			}
		}
		for _, m := range q.match {
			values, ok := known[m.metric][m.label]
			if !ok {
				t.Errorf("%s: %s has no label %s", e.where, m.metric, m.label)
			}
			for _, v := range m.values {
				if !slices.Contains(values, v) {
					t.Errorf("%s: %s of %s is never %s", e.where, m.label, m.metric, v)
				}
			}
		}
		for _, g := range q.groups {
			if !slices.Contains(labels, g) {
				t.Errorf("%s: groups by %s, which none of %v has", e.where, g, q.metrics)
			}
		}
		for _, l := range found(`\{\{(\w+)\}\}`, e.legend) {
			if len(q.by) == 0 && !slices.Contains(labels, l) || len(q.by) > 0 && !slices.Contains(q.by, l) {
				t.Errorf("%s: the legend %q has %s, which %s has not", e.where, e.legend, l, e.expr)
			}
		}
	}
}

func TestEveryAlertSaysWhatItMeansAndWhatToDo(t *testing.T) {
	t.Parallel()
	section(t, operating, "When an alert fires")
	tests := read(t, "deploy/prometheus/alerts_test.yaml")
	all := alerts(t)
	for _, a := range all {
		if !slices.Contains([]string{"warning", "critical"}, a.Labels["severity"]) {
			t.Errorf("%s: the severity is %q, want warning or critical", a.Alert, a.Labels["severity"])
		}
		description := a.Annotations["description"]
		if a.Annotations["summary"] == "" || !strings.Contains(description, " Meaning: ") || !strings.Contains(description, " Action: ") {
			t.Errorf("%s: got %q, want a summary, and a description with Meaning: and Action:", a.Alert, a.Annotations)
		}
		by := parseQuery(a.Expr).by
		for _, label := range found(`\$labels\.(\w+)`, a.Annotations["summary"]+description) {
			if len(by) > 0 && !slices.Contains(by, label) {
				t.Errorf("%s: says %s, which the expression does not keep", a.Alert, label)
			}
		}
		if link := "https://github.com/spillway-io/spillway/blob/main/" + operating + "#when-an-alert-fires"; a.Annotations["runbook_url"] != link {
			t.Errorf("%s: the runbook is %q, want %s", a.Alert, a.Annotations["runbook_url"], link)
		}
		if !strings.Contains(tests, `alertname="`+a.Alert+`"`) {
			t.Errorf("%s has no test", a.Alert)
		}
	}
}

// deployFiles are the files of this folder that are neither documents, which have tests
// of their own, nor Go nor generated, by their path from here.
func deployFiles(t *testing.T) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (path == "examples" || path == "man" || path == "sql"):
			return fs.SkipDir
		case d.IsDir() || filepath.Ext(path) == ".go" || filepath.Ext(path) == ".md":
			return nil
		}
		text, err := os.ReadFile(path)
		files[path] = string(text)
		return err
	})
	if err != nil || len(files) < 20 {
		t.Fatalf("%d files were found, %v", len(files), err)
	}
	return files
}

func TestEveryVariableOfTheDeployFilesIsAFlag(t *testing.T) {
	t.Parallel()
	flags := flagsOf(t, "serve", "report", "check")
	for file, text := range deployFiles(t) {
		for _, name := range found(`\b(SPILLWAY_[A-Z_]+)\b`, text) {
			flag := "--" + strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, "SPILLWAY_")), "_", "-")
			if !slices.Contains(flags, flag) {
				t.Errorf("%s names %s, and there is no flag %s", file, name, flag)
			}
		}
	}
}

func TestEveryFlagOfTheDeployFilesExists(t *testing.T) {
	t.Parallel()
	flags := flagsOf(t, "serve", "report", "check", "config check", "ls", "jobs ls", "jobs rm-dead")
	// Lines that call other programs have their flags.
	foreign := regexp.MustCompile(`docker|--from|helm |kubectl|systemctl|systemd-|redis-server|Prometheus|prometheus\.yaml`)
	for file, text := range deployFiles(t) {
		if filepath.Ext(file) == ".sh" && filepath.Dir(file) == "packages" {
			continue // they build packages, and call no command of ours
		}
		for line := range strings.Lines(text) {
			for _, flag := range found(`(?:^|[\s"`+"`"+`])(--[a-z][a-z-]+)`, line) {
				if !foreign.MatchString(line) && !slices.Contains(flags, flag) {
					t.Errorf("%s names %s, which no command has: %s", file, flag, strings.TrimSpace(line))
				}
			}
		}
	}
}

func TestEveryMetricOfTheDeployFilesExists(t *testing.T) {
	t.Parallel()
	known := everySeries(t)
	for file, text := range deployFiles(t) {
		for _, name := range found(`\b(spillway_[a-z_]*[a-z])\b`, text) {
			if known[name] == nil {
				t.Errorf("%s names %s, which is not at /metrics", file, name)
			}
		}
	}
}

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
