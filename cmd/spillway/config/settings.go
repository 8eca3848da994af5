package config

import (
	"encoding"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"golang.org/x/term"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// Process is what a command uses of its process. Tests pass their own.
type Process struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer
	LookupEnv      func(string) (string, bool)
	Environ        []string        // what LookupEnv searches, as NAME=value
	Name           string          // as a shell finds it; empty: spillway
	Given          map[string]bool // keys of the flags on the command line
	Variables      []string        // that any command knows
}

// IsTerminal reports whether w, such as a stream of a Process, is a terminal.
func IsTerminal(w any) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// UsageError is an error in flags, environment or file.
type UsageError struct{ error }

func (e UsageError) Unwrap() error { return e.error }

// Usage makes a UsageError of err.
func Usage(err error) error { return UsageError{err} }

// A Setting is a field of a command's struct that has a flag. Its key in the file
// and its environment variable derive from the flag's name.
type Setting struct {
	Flag  string   // as in max-age
	value any      // pointer to the field
	keys  []string // of its items, where it is a list that has fewer than their struct
}

func (s Setting) Key() string { return KeyOf(s.Flag) }
func (s Setting) Env() string { return envPrefix + strings.ToUpper(s.Key()) }

const envPrefix = "SPILLWAY_"

// text is the value in the form of the file and the environment.
func (s Setting) text() string {
	if d, ok := s.value.(*time.Duration); ok && *d != 0 {
		return spanText(*d)
	}
	return fmt.Sprint(reflect.ValueOf(s.value).Elem().Interface())
}

// KeyOf turns a flag's name into its key in the file.
func KeyOf(flag string) string { return strings.ReplaceAll(flag, "-", "_") }

// SettingsOf lists the settings of the struct that config points to, in the order
// of its fields, including those of embedded structs and of subcommands. A flag
// whose field has no name tag is no setting.
func SettingsOf(config any) []Setting {
	var list []Setting
	v := reflect.ValueOf(config).Elem()
	for i := range v.NumField() {
		field := v.Type().Field(i)
		if !field.IsExported() { // flags alone
			continue
		}
		_, embedded := field.Tag.Lookup("embed")
		_, command := field.Tag.Lookup("cmd")
		if embedded || command {
			list = append(list, SettingsOf(v.Field(i).Addr().Interface())...)
		} else if flag, ok := field.Tag.Lookup("name"); ok {
			list = append(list, Setting{Flag: flag, value: v.Field(i).Addr().Interface()})
		}
	}
	return list
}

// CopyFields sets each field of the struct that to points at from the field of
// the same name in from, if there is one of a type that converts. A setting has
// the same name in Config or Namespace and in the package that uses it, so no other
// list of settings is needed.
func CopyFields(to, from any) {
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
func (s Setting) set(text string) error {
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
		return parseInto(v, time.ParseDuration, text,
			"is not a duration: write one with its unit, such as 90s, 3m or 500ms")
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

// FromEnv sets the settings that have no flag on the command line from the
// environment. It returns where each value comes from, by key. An empty variable
// counts as unset, as `X: ${X:-}` in a compose file means it. Its error names all
// variables that cannot be used.
func FromEnv(list []Setting, p Process) (origins map[string]string, err error) {
	errs := p.unknownVariables()
	origins = map[string]string{}
	for _, s := range list {
		if p.Given[s.Key()] {
			origins[s.Key()] = "--" + s.Flag
			continue
		}
		text, _ := p.LookupEnv(s.Env())
		if text == "" {
			continue
		}
		if err := s.set(text); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", s.Env(), err))
		}
		origins[s.Key()] = s.Env()
	}
	if len(errs) > 0 {
		return origins, UsageError{errors.Join(errs...)}
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
func (p Process) unknownVariables() (errs []error) {
	for _, variable := range slices.Sorted(slices.Values(p.Environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || serviceVariable.MatchString(variable) ||
			slices.Contains(p.Variables, name) {
			continue
		}
		hint := "no setting has that name;"
		if near := nearestVariable(name, p.Variables); near != "" {
			hint = "did you mean " + near + "?"
		}
		errs = append(errs, fmt.Errorf("%s: unknown variable: %s correct or unset it, see spillway serve --help", name, hint))
	}
	return errs
}

// VariablesOf are the variables of the settings of a struct.
func VariablesOf(config any) (names []string) {
	for _, s := range SettingsOf(config) {
		names = append(names, s.Env())
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

// GivenFlags returns the keys of the flags on the command line.
func GivenFlags(k *kong.Context) map[string]bool {
	given := map[string]bool{}
	for _, path := range k.Path {
		if path.Flag != nil {
			given[KeyOf(path.Flag.Name)] = true
		}
	}
	return given
}

// Shards is a number of shards, or partition.AutoShards, which is written auto.
type Shards int

// UnmarshalText reads a number or auto.
func (s *Shards) UnmarshalText(text []byte) error {
	n, err := strconv.Atoi(string(text))
	switch {
	case string(text) == "auto":
		n = partition.AutoShards
	case err != nil || n < 0:
		return fmt.Errorf("%.40q is not a number of shards: write one such as 12, or auto", text)
	}
	*s = Shards(n)
	return nil
}

func (s Shards) String() string {
	if s == partition.AutoShards {
		return "auto"
	}
	return strconv.Itoa(int(s))
}

// MarshalJSON writes a number or the text auto.
func (s Shards) MarshalJSON() ([]byte, error) {
	if s == partition.AutoShards {
		return []byte(`"auto"`), nil
	}
	return []byte(s.String()), nil
}
