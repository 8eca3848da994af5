//go:build !unix

package process

import (
	"context"
	"errors"
)

// Supported reports whether Run works here: there are process groups on Unix only.
const Supported = false

// Run is errors.ErrUnsupported.
func (Command) Run(context.Context) (Output, error) { return Output{}, errors.ErrUnsupported }
