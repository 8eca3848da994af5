//go:build !unix

package command

import (
	"context"
	"errors"
)

const supported = false

func run(context.Context, []string, []string, []byte) (stdout, stderr []byte, err error) {
	return nil, nil, errors.ErrUnsupported
}
