// Package check checks a run of Spillway from outside: by what clients were
// told, what the sink saw, what Redis held and what the servers said of
// themselves. Nothing in it runs anything; a History goes in, Violations come
// out, each under the name of its check.
//
//	C1   the law: accepted = delivered + evicted + expired + dead + lost + buffered, at every moment
//	C2   acks ≤ accepted ≤ acks + unknowns
//	C3   what was stored is stored once: an entry has one sequence
//	C4   entries come out as they went in, in their own partition; a sequence has one entry
//	C5   every acknowledged entry was delivered, or is among those counted otherwise
//	C6   delivered is what the sink was given and took
//	C7   first presentations rise in sequence; nobody is given what another holds; a batch id means its entries
//	C8   nothing stale is presented, nothing fresh expires
//	C9   no partition holds more than its capacity; what overflows is the oldest
//	C10  a partition with entries is active, and nothing is left in the end
//	C11  metrics say what the ledger says; goroutines, descriptors and heap go back
//	C12  enough happened for the other checks to mean something
//	C13  in the end the keys of each namespace hold what its ledger says
//	C14  at most once is once; what shares a Write with other partitions arrives
//	C15  a paused partition is presented to no sink, and stays paused until somebody resumes it
//
// The jobs of queues have checks of their own:
//
//	J1   the law: published = acked + expired + deleted + lost + dead + ready + delayed + leased, at every moment
//	J2   acks ≤ published ≤ acks + unknowns; so it is for the acks of workers
//	J3   a job comes out as it went in, in its queue, and is stored once; ids rise, whatever the clock does
//	J4   nothing is handed out after its ack was confirmed
//	J5   at most tries times, each attempt once, not before its delay, not after its ttl
//	J6   every acknowledged job is acked, or dead, or its ttl was over
//	J7   while nothing is broken no poll waits beside a ready job, and no job beyond its due time; nothing is left in the end
//	J8   enough happened for the other checks to mean something
//	J9   no queue, and no group of one, has more leases than its limit, at every moment
//	J10  nothing is handed out of a queue that is paused
//
// Of schedules:
//
//	S1   no tick fires twice
//	S2   each tick that an account has as fired has its job, and no other has one; nothing is left in the end
//	S3   no tick fires before its time by the store's clock
//	S4   an account has each tick since the schedule was made, and what became of it
//	S5   enough happened for the other checks to mean something
package check
