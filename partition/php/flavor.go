package php

import (
	"slices"
	"strings"
)

// Flavor is the library whose rules hold in a namespace: think3, think2 or laravel.
type Flavor string

// The flavors.
const (
	Think3  Flavor = "think3"  // think-queue 3
	Think2  Flavor = "think2"  // think-queue 1 and 2
	Laravel Flavor = "laravel" // 5.7 to 13, Horizon
)

// Flavors are all of them, as a message names them.
var Flavors = []Flavor{Think3, Think2, Laravel}

// UnmarshalText takes any text: Policy.Validate says what is none.
func (f *Flavor) UnmarshalText(text []byte) error {
	*f = Flavor(text)
	return nil
}

// Valid reports whether the flavor is one.
func (f Flavor) Valid() bool { return slices.Contains(Flavors, f) }

// first is the attempts of a payload that was never delivered.
func (f Flavor) first() int64 {
	if f == Think2 {
		return 1
	}
	return 0
}

// onRelease reports whether attempts are counted when a payload goes back, not when it is handed out.
func (f Flavor) onRelease() bool { return f == Think2 }

// notifies reports whether there is one notification a ready payload, for BLPOP of block_for.
func (f Flavor) notifies() bool { return f == Laravel }

// restartKey is the key in PHP's cache whose value changes when workers are to restart.
func (f Flavor) restartKey() string {
	if f == Laravel {
		return "illuminate:queue:restart"
	}
	return "think:queue:restart"
}

// base is the key of the list of a queue, behind the prefix of the namespace. On a cluster, where
// all keys of a queue have to be in one slot, Laravel's queues are named with the braces.
func (f Flavor) base(queue string, cluster bool) string {
	switch {
	case f == Think3:
		return "{queues:" + queue + "}"
	case f == Laravel && cluster:
		return "queues:{" + queue + "}"
	}
	return "queues:" + queue
}

// queueOf is the queue that a key belongs to, also one whose name no queue of Spillway's can have;
// "": none.
func (f Flavor) queueOf(key string, cluster bool) string {
	before, after, _ := strings.Cut(f.base("\n", cluster), "\n")
	queue, isBase := strings.CutPrefix(key, before)
	for _, end := range []string{":delayed", ":reserved"} {
		if base, cut := strings.CutSuffix(queue, end); cut {
			queue = base
			break
		}
	}
	queue, ends := strings.CutSuffix(queue, after)
	if !isBase || !ends || strings.HasSuffix(key, ":notify") {
		return ""
	}
	return queue
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
