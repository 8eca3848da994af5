package jobmodel

// Bugs are mistakes that can be put into the model and into the rules of the
// processes: a walk that has one of them must break a promise. Mistakes of the
// scripts' text are seeded beside the scripts.
var Bugs = []string{
	// The scripts' rules.
	"sequences follow the clock",
	"a caller's id is not looked up",
	"the quota is not checked",
	"forgets no queue",
	"forgets a queue but its tombstones",
	"a tombstone ends a claim",
	"a claim hands out expired jobs",
	"the last try is not marked",
	"revert ignores the token",
	"revert ignores the deadline",
	"revert counts the attempt",
	"an ack leaves no tombstone",
	"settle ignores the attempt",
	"requeue counts the attempt",
	"requeue wakes nobody",
	"nack forgets the attempt",
	"promote trusts what was read",
	"promote wakes nobody",
	"a lapse never ends a job",
	"a lapse forgets the attempt",
	"an expired head is not counted",
	"purge does not count",
	"dead jobs expire",
	"the audit finds nothing",
	// The rules of lanes and of waiting.
	"a lane claims before it reverts",
	"a poll waits without asking again",
	"a poll waits though something was heard",
	"a subscription counts from when the answer comes",
	"a wake is not passed on",
	"queues that were not asked are forgotten",
	"what is left is ignored",
	"nobody asks what is left",
	"a reconnect wakes nobody",
	"jobs of a client that went away are not given back",
}
