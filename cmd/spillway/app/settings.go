package app

import (
	"encoding"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

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

// set parses text into the setting. Its error says what to write instead.
func (s setting) set(text string) error {
	var err error
	switch v := s.value.(type) {
	case *string:
		*v = text
	case *int:
		if *v, err = strconv.Atoi(text); err != nil {
			return fmt.Errorf("%q is not a whole number: write one such as 100", text)
		}
	case *float64:
		if *v, err = strconv.ParseFloat(text, 64); err != nil {
			return fmt.Errorf("%q is not a number: write one such as 2.5", text)
		}
	case *bool:
		if *v, err = strconv.ParseBool(text); err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
	case *time.Duration:
		if *v, err = time.ParseDuration(text); err != nil {
			return fmt.Errorf("%q is not a duration: write one with its unit, such as 90s, 3m or 500ms", text)
		}
	case encoding.TextUnmarshaler:
		return v.UnmarshalText([]byte(text))
	default:
		return fmt.Errorf("a setting cannot be a %T", s.value)
	}
	return nil
}

// fromEnv sets the settings that have no flag on the command line from the
// environment. It returns where each value comes from, by key. An empty variable
// counts as unset, as `X: ${X:-}` in a compose file means it.
func fromEnv(list []setting, p process) (origins map[string]string, err error) {
	if err := unknownVariables(p.environ); err != nil {
		return nil, usageError{err}
	}
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
			return nil, usageError{fmt.Errorf("%s: %w", s.env(), err)}
		}
		origins[s.key()] = s.env()
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
func unknownVariables(environ []string) error {
	known := settingsOf(&cli{})
	var errs []error
	for _, variable := range slices.Sorted(slices.Values(environ)) {
		name, value, _ := strings.Cut(variable, "=")
		if !strings.HasPrefix(name, envPrefix) || value == "" || serviceVariable.MatchString(variable) ||
			slices.ContainsFunc(known, func(s setting) bool { return s.env() == name }) {
			continue
		}
		flag := strings.ReplaceAll(strings.ToLower(strings.TrimPrefix(name, envPrefix)), "_", "-")
		errs = append(errs, fmt.Errorf("%s: unknown variable: no command has a flag --%s; correct or unset it, see spillway serve --help", name, flag))
	}
	return errors.Join(errs...)
}
