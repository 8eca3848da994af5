//go:build deploy

package deploy

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
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
