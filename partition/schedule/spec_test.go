package schedule_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/spillway-io/spillway/partition/schedule"
)

// What the door takes has to be readable once it is stored: a schedule that is not never fires.
func TestWhatIsStoredOfAScheduleCanBeRead(t *testing.T) {
	t.Parallel()
	for name, fill := range map[string]string{
		"bytes that HTML escapes": "<", "a control character": `\u0001`, "no UTF-8": "\xff", "a line separator": "\u2028", "white space": " ",
	} {
		for _, field := range []string{`"data":"%s"`, `"attributes":{"a":"%s"}`} {
			t.Run(name+" in "+field, func(t *testing.T) {
				t.Parallel()
				text := func(n int) []byte {
					return fmt.Appendf(nil, `{"every":"1h",`+field+`,"jitter":"60s"}`, strings.Repeat(fill, n))
				}
				for n := schedule.MaxSpec / len(fill); n > 0; n -= 1 + n/9 {
					checkStored(t, text(n))
				}
				if _, err := schedule.Parse(text(schedule.MaxSpec / 10 / len(fill))); err != nil {
					t.Errorf("a tenth of the bound: %v", err)
				}
			})
		}
	}
}

// checkStored checks a specification that the door takes.
func checkStored(t *testing.T, text []byte) {
	t.Helper()
	s, err := schedule.Parse(text)
	if err != nil {
		return
	}
	stored := s.JSON()
	again, err := schedule.Parse(stored)
	if err != nil || len(stored) > schedule.MaxSpec || !bytes.Equal(again.JSON(), stored) {
		t.Fatalf("%d bytes became %d, which read: %v", len(text), len(stored), err)
	}
}

func FuzzWhatIsStoredOfAScheduleCanBeRead(f *testing.F) {
	f.Add([]byte(`{"cron":"0 3 * * *","tz":"Europe/Berlin","data":{"a":"<"},"attributes":{"b":"\u2028"},"grace":"1m"}`))
	f.Add([]byte(`{"at":"2030-01-02T03:04:05.678901234Z","data_base64":"AAE=","until":"2031-01-01T00:00:00+14:00"}`))
	f.Fuzz(checkStored)
}
