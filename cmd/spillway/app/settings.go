package app

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/spillway-io/spillway/drain/sink"
)

// process is what a command uses of its process. Tests pass their own.
type process struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	lookupEnv      func(string) (string, bool)
	environ        []string        // what lookupEnv searches, as NAME=value
	name           string          // as a shell finds it; empty: spillway
	given          map[string]bool // keys of the flags on the command line
	variables      []string        // that any command knows
}

// usageError is an error in flags, environment or file.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

// A setting is a field of a command's struct that has a flag. Its key in the file
// and its environment variable derive from the flag's name.
type setting struct {
	flag  string // as in max-age
	value any    // pointer to the field
}

func (s setting) key() string { return keyOf(s.flag) }
func (s setting) env() string { return envPrefix + strings.ToUpper(s.key()) }

const envPrefix = "SPILLWAY_"

// text is the value in the form of the file and the environment.
func (s setting) text() string {
	text := fmt.Sprint(reflect.ValueOf(s.value).Elem().Interface())
	if _, ok := s.value.(*time.Duration); ok {
		// Go prints 3m0s and 1h0m0s; the documentation says 3m and 1h.
		if short, cut := strings.CutSuffix(text, "m0s"); cut {
			text = short + "m"
		}
		if short, cut := strings.CutSuffix(text, "h0m"); cut {
			text = short + "h"
		}
	}
	return text
}

// keyOf turns a flag's name into its key in the file.
func keyOf(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// settingsOf lists the settings of the struct that config points to, in the order
// of its fields, including those of embedded structs and of subcommands. A flag
// whose field has no name tag is no setting.
func settingsOf(config any) []setting {
	var list []setting
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() { // flags alone
			continue
		}
		_, embedded := field.Tag.Lookup("embed")
		_, command := field.Tag.Lookup("cmd")
		if embedded || command {
			list = append(list, settingsOf(v.Field(i).Addr().Interface())...)
		} else if flag, ok := field.Tag.Lookup("name"); ok {
			list = append(list, setting{flag, v.Field(i).Addr().Interface()})
		}
	}
	return list
}

// copyFields sets each field of the struct that to points at from the field of
// the same name in from, if there is one of a type that converts. A setting has
// the same name in Config or Namespace and in the package that uses it, so no other
// list of settings is needed.
func copyFields(to, from any) {
	target, source := reflect.ValueOf(to).Elem(), reflect.ValueOf(from)
	for i := range target.NumField() {
		field := target.Type().Field(i)
		if _, ok := field.Tag.Lookup("embed"); ok || !field.IsExported() {
			continue
		}
		value := source.FieldByName(field.Name)
		if value.IsValid() && value.CanConvert(field.Type) {
			target.Field(i).Set(value.Convert(field.Type))
		}
	}
}

// set parses text into the setting. Its error says what to write instead; the value
// is then as before.
func (s setting) set(text string) error {
	switch v := s.value.(type) {
	case *string:
		*v = text
	case *int:
		return parseInto(v, strconv.Atoi, text, "is not a whole number: write one such as 100")
	case *float64:
		number := func(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
		return parseInto(v, number, text, "is not a number: write one such as 2.5")
	case *bool:
		return parseInto(v, strconv.ParseBool, text, "is neither true nor false")
	case *time.Duration:
		return parseInto(v, time.ParseDuration, text, "is not a duration: write one with its unit, such as 90s, 3m or 500ms")
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(text))
	default:
		return fmt.Errorf("a setting cannot be a %T", s.value)
	}
	return nil
}

func parseInto[T any](to *T, parse func(string) (T, error), text, problem string) error {
	value, err := parse(text)
	if err != nil {
		return fmt.Errorf("%q %s", text, problem)
	}
	*to = value
	return nil
}

// fromEnv sets the settings that have no flag on the command line from the
// environment. It returns where each value comes from, by key. An empty variable
// counts as unset, as `X: ${X:-}` in a compose file means it. Its error names all
// variables that cannot be used.
func fromEnv(list []setting, p process) (origins map[string]string, err error) {
	errs := p.unknownVariables()
	origins = map[string]string{}
	for _, s := range list {
		if p.given[s.key()] {
			origins[s.key()] = "--" + s.flag
			continue
		}
		text, _ := p.lookupEnv(s.env())
		if text == "" {
			continue
		}
		if err := s.set(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.env(), err))
		}
		origins[s.key()] = s.env()
	}
	if len(errs) > 0 {
		return origins, usageError{errors.Join(errs...)}
	}
	return origins, nil
}

// serviceVariable matches the variables that Kubernetes sets in every pod for a
// Service called spillway or spillway-something. The value of PORT must be a URL, so
// that an unknown setting SPILLWAY_X_PORT is still an error.
var serviceVariable = regexp.MustCompile(`^SPILLWAY(_[A-Z0-9_]+)?_(SERVICE_HOST=|SERVICE_PORT(_[A-Z0-9_]+)?=|PORT=(tcp|udp|sctp)://|PORT_[0-9]+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?=)`)

// unknownVariables returns an error for each SPILLWAY_ variable that is a setting
// of no command, so that a misspelt one is noticed. Variables of other commands are
// allowed, and empty ones count as unset.
func (p process) unknownVariables() (errs []error) {
	for _, variable := range slices.Sorted(slices.Values(p.environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || serviceVariable.MatchString(variable) || slices.Contains(p.variables, name) {
			continue
		}
		hint := "no setting has that name;"
		if near := nearestVariable(name, p.variables); near != "" {
			hint = "did you mean " + near + "?"
		}
		errs = append(errs, fmt.Errorf("%s: unknown variable: %s correct or unset it, see spillway serve --help", name, hint))
	}
	return errs
}

// variablesOf are the variables of the settings of a struct.
func variablesOf(config any) (names []string) {
	for _, s := range settingsOf(config) {
		names = append(names, s.env())
	}
	return names
}

// nearestVariable compares what follows SPILLWAY_, which all have.
func nearestVariable(name string, known []string) string {
	short := make([]string, len(known))
	for i := range known {
		short[i] = strings.TrimPrefix(known[i], envPrefix)
	}
	if near := sink.Nearest(strings.TrimPrefix(name, envPrefix), short); near != "" {
		return envPrefix + near
	}
	return ""
}

// givenFlags returns the keys of the flags on the command line.
func givenFlags(k *kong.Context) map[string]bool {
	given := map[string]bool{}
	for _, path := range k.Path {
		if path.Flag != nil {
			given[keyOf(path.Flag.Name)] = true
		}
	}
	return given
}
