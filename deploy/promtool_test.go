//go:build deploy

package deploy

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/spillway-io/spillway/lua/proc"
	"github.com/spillway-io/spillway/lua/redistest"
)

func TestPromtoolAcceptsTheConfigurationAndTheAlerts(t *testing.T) {
	t.Parallel()
	output(t, "promtool", "check", "config", "deploy/prometheus/prometheus.yaml")
	output(t, "promtool", "check", "rules", "--lint=all", "--lint-fatal", alertsFile)
}

func TestPromtoolPlaysTheTestsOfTheAlerts(t *testing.T) {
	t.Parallel()
	output(t, "promtool", "test", "rules", "deploy/prometheus/alerts_test.yaml")
}

// promtool knows nothing of dashboards, so their expressions become rules.
func TestPromtoolParsesEveryExpressionOfTheDashboard(t *testing.T) {
	t.Parallel()
	type rule struct {
		Record string `yaml:"record"`
		Expr   string `yaml:"expr"`
	}
	var rules []rule
	variables := strings.NewReplacer("$__rate_interval", "1m", "$__range", "1h")
	for i, e := range expressions(t) {
		rules = append(rules, rule{fmt.Sprintf("dashboard:%d", i), variables.Replace(e.expr)})
	}
	text, err := yaml.Marshal(map[string]any{"groups": []any{map[string]any{"name": "dashboard", "rules": rules}}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "rules.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	output(t, "promtool", "check", "rules", file)
}

// startPrometheus scrapes an admin port each second and evaluates the alerts. It returns
// its own address.
func startPrometheus(t *testing.T, admin string) (address string) {
	t.Helper()
	dir := t.TempDir()
	config := strings.NewReplacer("interval: 15s", "interval: 1s", "spillway:8081", admin, "alerts.yaml", filepath.Join(dir, "alerts.yaml")).
		Replace(read(t, "deploy/prometheus/prometheus.yaml"))
	for name, text := range map[string]string{"prometheus.yaml": config, "alerts.yaml": read(t, alertsFile)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	address = redistest.FreeAddr(t)
	cmd := exec.Command("prometheus", "--config.file="+filepath.Join(dir, "prometheus.yaml"),
		"--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+address, "--log.level=error")
	cmd.Stderr = os.Stderr
	proc.KillWithParent(cmd)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
	})
	return address
}

// ask decodes the data of an answer of Prometheus, and says whether it was a success.
func ask(address, path string, data any) bool {
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	answer := struct{ Data any }{data}
	return json.NewDecoder(resp.Body).Decode(&answer) == nil && resp.StatusCode == http.StatusOK
}

// results is how many series an expression has now; -1 where it cannot be evaluated.
func results(address, expr string) int {
	var data struct{ Result []any }
	if !ask(address, "/api/v1/query?query="+url.QueryEscape(expr), &data) {
		return -1
	}
	return len(data.Result)
}

func TestPrometheusAnswersEveryExpressionOfARunningService(t *testing.T) {
	t.Parallel()
	n := newcomer{t: t}
	config := filepath.Join(t.TempDir(), "queues.yaml")
	text := fmt.Sprintf(`sink: "null:"
linger: 0s
pools: {shop: %q}
namespaces:
  default: {}
  mail: {kind: queue, push: [{sink: crm}]}
  shop: {kind: php, pool: shop, flavor: laravel, queues: [default]}
sinks: {crm: "null:"}
`, redistest.Start(t).URL())
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	n.serve("--config", config)
	address := startPrometheus(t, n.admin)
	redistest.Until(t, time.Minute, "Prometheus has the rate of deliveries", func() bool {
		n.curl("curl -d 1 http://127.0.0.1:8080/v1/default/any")
		return results(address, "rate(spillway_drain_lag_seconds_count[5s]) > 0") == 1
	})
	redistest.Until(t, time.Minute, "Prometheus has seen PHP's queues, and how many of its jobs ended, twice", func() bool {
		return results(address, "spillway_php_queue_jobs") > 0 && results(address, "rate(spillway_php_jobs_total[30s])") > 0
	})
	variables := strings.NewReplacer("$__rate_interval", "30s", "$__range", "1m", "$job", "spillway", "$namespace", "default|mail|shop", "$instance", ".*")
	for _, e := range expressions(t) {
		dashboard := strings.HasPrefix(e.where, "panel ") || strings.HasPrefix(e.where, "variable ")
		switch got := results(address, variables.Replace(e.expr)); {
		case got < 0:
			t.Errorf("%s: Prometheus cannot evaluate %s", e.where, e.expr)
		case got == 0 && dashboard && !strings.Contains(e.expr, "> 0") && !strings.Contains(e.expr, "fallback"): // what is well, or not configured, is empty
			t.Errorf("%s: no data for %s", e.where, e.expr)
		case got > 0 && !dashboard:
			t.Errorf("%s fires for a service that is well", e.where)
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, Health, LastError string }
		}
	}
	redistest.Until(t, time.Minute, "Prometheus has evaluated every alert", func() bool {
		evaluated := 0
		if !ask(address, "/api/v1/rules", &rules) {
			return false
		}
		for _, g := range rules.Groups {
			for _, r := range g.Rules {
				if r.Health == "err" {
					t.Fatalf("%s: %s", r.Name, r.LastError)
				}
				if r.Health == "ok" {
					evaluated++
				}
			}
		}
		return evaluated == len(alerts(t))
	})
}

// The page is generated, and needs neither groff nor mandoc: where one of them is
// there, it reads the page without a warning.
func TestPackagesManualPageHasNoWarnings(t *testing.T) {
	t.Parallel()
	page := filepath.Join(root, "deploy", "man", "spillway.1")
	for _, reader := range [][]string{{"groff", "-ww", "-z", "-man", "-Tutf8"}, {"mandoc", "-T", "lint", "-W", "error"}} {
		path, err := exec.LookPath(reader[0])
		if err != nil {
			t.Logf("%s is not on PATH", reader[0])
			continue
		}
		out, err := exec.CommandContext(t.Context(), path, append(reader[1:], page)...).CombinedOutput()
		if text := strings.TrimSpace(string(out)); err != nil || text != "" {
			t.Errorf("%s: %v\n%s", reader[0], err, text)
		}
	}
}
