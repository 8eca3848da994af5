package jobmodel

// Bugs are mistakes that can be put into the model and into the rules of the
// processes: a walk that has one of them must break a promise. Mistakes of the
// scripts' text are seeded beside the scripts. The value is Setting.Waiting, where
// that finds the bug soon.
var Bugs = map[string]bool{
	// The scripts' rules.
	"sequences follow the clock":              false,
	"a caller's id is not looked up":          false,
	"an expired job keeps its caller's id":    false,
	"an expired job outlives its caller's id": false,
	"an ack finds expired jobs":               false,
	"a lapsed lease holds an expired job":     false,
	"a respawn begins attempts anew":          false,
	"the quota is not checked":                false,
	"forgets no queue":                        false,
	"forgets a queue but its tombstones":      false,
	"a tombstone ends a claim":                false,
	"a claim hands out expired jobs":          false,
	"the last try is not marked":              false,
	"revert ignores the token":                false,
	"revert ignores the deadline":             false,
	"revert counts the attempt":               false,
	"an ack leaves no tombstone":              false,
	"settle ignores the attempt":              false,
	"requeue counts the attempt":              false,
	"requeue ignores the deadline":            false,
	"settle wakes nobody":                     false,
	"touch grants another try":                false,
	"nack forgets the attempt":                false,
	"promote trusts what was read":            false,
	"promote wakes nobody":                    false,
	"a lapse never ends a job":                false,
	"a lapse forgets the attempt":             false,
	"an expired head is not counted":          false,
	"purge does not count":                    false,
	"dead jobs expire":                        false,
	"a bury counts as a nack":                 false,
	"a lapse counts as a nack":                false,
	"the audit finds nothing":                 false,
	// The rules of lanes and of waiting.
	"a lane claims before it reverts":                    false,
	"a poll waits without asking again":                  true,
	"a poll waits though something was heard":            true,
	"a subscription counts from when the answer comes":   true,
	"a poll waits behind a full answer":                  true,
	"a wake is not passed on":                            true,
	"queues that were not asked are forgotten":           true,
	"what is left is ignored":                            true,
	"nobody asks what is left":                           true,
	"a reconnect wakes nobody":                           true,
	"jobs of a client that went away are not given back": false,
}
