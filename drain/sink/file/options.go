package file

import (
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spillway-io/spillway/drain/sink"
	"github.com/spillway-io/spillway/partition"
)

// options are those of the URL; see New.
type options struct {
	mode        fs.FileMode
	maxSize     int64         // bytes; 0 = any
	rotateEvery time.Duration // 0 = never
	compress    bool
	keep        int // 0 = all
}

const (
	ownerOnly = fs.FileMode(0o600)
	noneRuns  = fs.FileMode(0o666)
)

func parseOptions(u *url.URL) (options, error) {
	o := options{mode: ownerOnly}
	given, err := sink.Options(u, "mode", "max_size", "rotate_every", "compress", "keep")
	if err != nil {
		return o, err
	}
	for name, text := range given {
		var err error
		switch name {
		case "mode":
			o.mode, err = parseMode(text)
		case "max_size":
			o.maxSize, err = parseSize(text)
		case "rotate_every":
			if o.rotateEvery, err = time.ParseDuration(text); err != nil || o.rotateEvery < time.Second {
				err = fmt.Errorf("%q is not usable: want 1s or more, such as 1h", text)
			}
		case "compress":
			if o.compress = text == "gzip"; !o.compress {
				err = fmt.Errorf("%q is unknown: want gzip", text)
			}
		case "keep":
			if o.keep, err = strconv.Atoi(text); err != nil || o.keep < 1 {
				err = fmt.Errorf("%q is not usable: want a number of rotated files, 1 or more", text)
			}
		}
		if err != nil {
			return o, fmt.Errorf("%s: %w", name, err)
		}
	}
	if (o.compress || o.keep > 0) && o.maxSize == 0 && o.rotateEvery == 0 {
		return o, errors.New("compress and keep are about rotated files: add max_size or rotate_every")
	}
	return o, nil
}

func parseMode(text string) (fs.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	m := fs.FileMode(n)
	if err != nil || m&ownerOnly != ownerOnly || m&^noneRuns != 0 {
		return 0, fmt.Errorf("%q is not usable: want an octal number from 0600 to 0666 that lets the owner read and write", text)
	}
	return m, nil
}

// parseSize requires a unit: "100" is meant as megabytes as often as bytes.
func parseSize(text string) (int64, error) {
	if text != "" && strings.Trim(text, "0123456789") == "" {
		return 0, fmt.Errorf("%s has no unit: write %sMB, %sMiB or %sB", text, text, text, text)
	}
	var size partition.Size
	if size.UnmarshalText([]byte(text)) != nil {
		return 0, fmt.Errorf("%q is not a size: write one with its unit, such as 64MiB, 100MB or 4096B", text)
	}
	if size == 0 {
		return 0, errors.New("want 1B or more")
	}
	return int64(size), nil
}
