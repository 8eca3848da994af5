package admin

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tidwall/gjson"

	"github.com/spillway-io/spillway/partition/mask"
	"github.com/spillway-io/spillway/partition/php"
)

// Bounds of a count of dead letters by class: of the newest ones, so many, in so many reads, each of
// 100 letters or 1 MiB at most.
const (
	classedLetters = 1000
	classedReads   = 30
)

// classedBy are the keys of a payload of PHP's that say the class.
var classedBy = []string{"job", "data", "commandname", "displayname"}

// classOf is the class of a job of PHP's, as far as masks let it be shown.
func classOf(payload []byte, masks []string) string {
	if slices.ContainsFunc(masks, func(key string) bool {
		return slices.Contains(classedBy,
			strings.ToLower(key))
	}) {
		return strings.Trim(mask.Value, `"`)
	}
	return cmp.Or(fmt.Sprintf("%.200s", php.Read(payload).Class), "unknown")
}

// ofPHP adds what the payload of a job of PHP's says: its class, and how often a dead one was delivered.
func (j *Job) ofPHP(payload []byte, masks []string) {
	j.Class = classOf(payload, masks)
	if n := int(gjson.GetBytes(payload, "attempts").Int()); j.Attempt == nil && j.State == "dead" && n > 0 {
		j.Attempt = &n
	}
}

// countClasses counts the newest dead letters of a queue of PHP's by the class that PHP runs.
func (s *Server) countClasses(r *request, space jobSpace, queue string, masks []string, to *DeadJobs) error {
	to.Classes = map[string]int{}
	offset := max(0, int(to.Total)-classedLetters)
	for range classedReads {
		read := 0
		_, err := paced(r.ctx, s.observer.counts, func() (int64, error) {
			list, total, err := space.store.Dead(r.ctx, space.ns, queue, offset+to.Classed, maxDeadJobs)
			for _, j := range list {
				to.Classes[classOf(j.Payload, masks)]++
			}
			read = len(list)
			return total, err
		})
		if to.Classed += read; err != nil || read == 0 {
			return err
		}
	}
	return nil
}
