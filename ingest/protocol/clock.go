package protocol

import (
	"time"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/ingest/wire"
)

// maxTimeLen bounds the text of a time: a date, nine digits of a second, an offset.
const maxTimeLen = 40

// parseTime reads Unix milliseconds, or ISO 8601 with a zone or, without one, in UTC.
func parseTime(value gjson.Result) (ms int64, ok bool) {
	switch value.Type {
	case gjson.Number:
		return wire.ParseMillis(value.Raw)
	case gjson.String:
		if len(value.Str) > maxTimeLen {
			return 0, false
		}
		at, err := time.Parse(time.RFC3339, value.Str)
		if err != nil {
			at, err = time.Parse("2006-01-02T15:04:05", value.Str)
		}
		return at.UnixMilli(), err == nil
	}
	return 0, false
}
