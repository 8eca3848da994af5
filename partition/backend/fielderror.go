package backend

import "fmt"

// A FieldError is an error in the configuration.
type FieldError struct {
	Field string // the setting, as the configuration file spells it: snake_case
	Value any    // what it is set to; text about the value where that may hold a password
	Want  string // what to write instead, as a phrase that follows "want"
}

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %v is not usable: want %s", e.Field, e.Value, e.Want)
}
