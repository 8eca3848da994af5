//go:build !unix

package command

import (
	"context"
	"errors"
)

const supported = false

func run(context.Context, []string, []string, []byte) ([]byte, error) {
	return nil, errors.ErrUnsupported
}
