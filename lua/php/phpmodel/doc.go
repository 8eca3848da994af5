// Package phpmodel is the rules of lua/php once more, in Go, and a world around them: PHP's
// workers command by command, processes of ours, producers, time and faults on one queue.
// All of it is tests: nothing else needs it.
//
// A Queue is the model, on plain maps and slices. A World takes random steps on one and
// wants the invariants of DESIGN.md kept after each. The same walk runs on the model alone,
// and beside the scripts, where every reply and every key must be equal.
package phpmodel
