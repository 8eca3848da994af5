package app

import (
	"encoding"
	"fmt"
	"maps"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/cmd/spillway/config"
)

const configurationFile = "../../../deploy/CONFIGURATION.md"

// generatedPart finds what `make generate` writes.
var generatedPart = regexp.MustCompile(`(?s)(<!-- generated: make generate -->\n).*(<!-- end of generated -->)`)

// serveFlags are the settings of serve with help and defaults filled in, in the
// order of the struct.
func serveFlags(t *testing.T) []*kong.Flag {
	t.Helper()
	var c struct {
		Config config.Config `embed:""`
	}
	parser, err := kong.New(&c, config.FlagDefaults(sinkSchemes()))
	if err != nil {
		t.Fatal(err)
	}
	var flags []*kong.Flag
	for _, group := range parser.Model.AllFlags(false) {
		flags = append(flags, group...)
	}
	return slices.DeleteFunc(flags, func(f *kong.Flag) bool { return f.Name == "help" })
}

// kindOf says how a value is written.
func kindOf(f *kong.Flag) string {
	switch f.Target.Addr().Interface().(type) {
	case *time.Duration:
		return "duration"
	case *int:
		return "number"
	case *bool:
		return "yes or no"
	case *config.Shards:
		return "number or auto"
	case encoding.TextUnmarshaler:
		return "size"
	}
	if f.PlaceHolder == "FILE" {
		return "file"
	}
	return "text"
}

// configurationTables are the tables of CONFIGURATION.md: one a group of flags,
// as in the help.
func configurationTables(t *testing.T) string {
	t.Helper()
	inFile := config.KeysOf(config.SettingsOf(&config.Config{}))
	var groups []string
	rows := map[string]string{}
	for _, f := range serveFlags(t) {
		group := "The file"
		if f.Group != nil {
			group = strings.TrimSuffix(f.Group.Title, ":")
		}
		if !slices.Contains(groups, group) {
			groups = append(groups, group)
		}
		standard := "none"
		// A file cannot name itself.
		if f.Name != "config" && !slices.Contains(inFile, config.KeyOf(f.Name)) {
			t.Errorf("--%s is no key of the file", f.Name)
		}
		if env := (config.Setting{Flag: f.Name}).Env(); env != "SPILLWAY_"+strings.ToUpper(config.KeyOf(f.Name)) {
			t.Errorf("--%s is the variable %s, against the rule that the page states", f.Name, env)
		}
		if f.Target.Kind() == reflect.Bool {
			standard = "`false`"
		}
		if f.Default != "" {
			standard = "`" + f.Default + "`"
		}
		rows[group] += fmt.Sprintf("| `--%s` | %s | %s | %s | %s |\n", f.Name, standard, kindOf(f), config.ReloadRuleOf(config.KeyOf(f.Name)), strings.ReplaceAll(f.Help, "|", `\|`))
	}
	var b strings.Builder
	for _, group := range groups {
		fmt.Fprintf(&b, "\n### %s\n\n| flag | default | kind | reload | meaning |\n|---|---|---|---|---|\n%s", group, rows[group])
	}
	return b.String() + "\n"
}

func TestTheConfigurationTablesAreGenerated(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(configurationFile)
	if err != nil {
		t.Fatal(err)
	}
	text := string(raw)
	if !generatedPart.MatchString(text) {
		t.Fatalf("%s has no generated part", configurationFile)
	}
	tables := strings.ReplaceAll(configurationTables(t), "$", "$$")
	want := generatedPart.ReplaceAllString(text, "${1}"+tables+"${2}")
	if *update {
		if err := os.WriteFile(configurationFile, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if text != want {
		t.Errorf("%s differs from the settings of serve; run make generate and read the difference", configurationFile)
	}
}

func TestTheConfigurationListsEverySink(t *testing.T) {
	t.Parallel()
	raw, err := os.ReadFile(configurationFile)
	if err != nil {
		t.Fatal(err)
	}
	_, table, _ := strings.Cut(string(raw), "\n## Sinks\n")
	table, _, _ = strings.Cut(table, "\n### ")
	var got []string
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z][a-z0-9-]*):").FindAllStringSubmatch(table, -1) {
		got = append(got, m[1])
	}
	slices.Sort(got)
	if want := slices.Sorted(maps.Keys(sinkRegistry())); !slices.Equal(got, want) {
		t.Errorf("%s lists the sinks %v, the registry has %v", configurationFile, got, want)
	}
}

// The sinks' options are asked of the sinks themselves, by one that no sink has.
func TestTheConfigurationDocumentsEveryOptionOfEverySink(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(configurationFile)
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if cells := strings.Split(line, "|"); len(cells) > 3 && strings.Contains(cells[1], ":") {
			scheme, _, _ := strings.Cut(strings.Trim(cells[1], " `"), ":")
			rows[scheme] += line
		}
	}
	for _, form := range []string{
		"file:///x", "redis-stream://h:1/0", "clickhouse://h:1/db?table=t", "postgres://u@h:1/db?table=t", "kafka://h:1/t",
		"nats://h:1/s", "s3://k:s@h/b/p", "elasticsearch://h:1/i",
	} {
		joint := "?"
		if strings.Contains(form, joint) {
			joint = "&"
		}
		_, err := sinkRegistry().New(form + joint + "qqqqqqqqqqqq=1")
		if err == nil || !strings.Contains(err.Error(), "known are ") {
			t.Errorf("%s: %v, want an error that lists its options", form, err)
			continue
		}
		scheme, _, _ := strings.Cut(form, ":")
		_, known, _ := strings.Cut(err.Error(), "known are ")
		for option := range strings.SplitSeq(known, ", ") {
			if !strings.Contains(rows[scheme], option) {
				t.Errorf("deploy/CONFIGURATION.md does not say what the option %s of %s: does", option, scheme)
			}
		}
	}
}
