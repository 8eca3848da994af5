package backend

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/redis/go-redis/v9"
)

// The errors of calls. Every error Is one of the first three,
// which say what the caller may do next; the others are more precise.
var (
	// ErrUnavailable: the store did not run the operation, for certain. Retry.
	ErrUnavailable = errors.New("store unavailable")
	// ErrUnknown: the operation may or may not have run. Never repeat a produce
	// then; claim, commit and release are safe to repeat.
	ErrUnknown = errors.New("outcome unknown")
	// ErrBroken: a foreign value under one of the store's keys, a script error or a
	// missing right. A person has to look.
	ErrBroken = errors.New("store rejects")

	// ErrUnconfirmed goes with ErrUnknown: the primary has the entries, but fewer
	// replicas than Config.Replicas confirmed them in time.
	ErrUnconfirmed = errors.New("too few replicas confirmed it in time")
	// ErrFull is ErrUnavailable because the store is out of memory.
	ErrFull = fmt.Errorf("store full: %w", ErrUnavailable)
	// ErrRejectsWrites is ErrUnavailable because the server is in a state in which it rejects every write: it is
	// a replica, has too few replicas, or cannot write its snapshot or append-only file.
	ErrRejectsWrites = fmt.Errorf("store rejects writes: %w", ErrUnavailable)
	// ErrIncompatible is ErrBroken because the data or the setup of the store does not
	// match this program or its configuration.
	ErrIncompatible = fmt.Errorf("incompatible: %w", ErrBroken)
)

// A storeError is an error of Redis or the network, in one of the classes above.
type storeError struct {
	class error
	cause error
}

// Wrap puts cause into a class: ErrUnavailable, ErrUnknown or ErrBroken, or an error that is
// one of these.
func Wrap(class, cause error) error { return &storeError{class, cause} }

func (e *storeError) Error() string   { return e.class.Error() + ": " + e.cause.Error() }
func (e *storeError) Unwrap() []error { return []error{e.class, e.cause} }

// Permanence is the class of an error that a person has to mend, ErrIncompatible or ErrBroken; else nil. The log gets
// a new line when it changes: texts may differ in a port number alone.
func Permanence(err error) error {
	for _, class := range []error{ErrIncompatible, ErrBroken} {
		if errors.Is(err, class) {
			return class
		}
	}
	return nil
}

// notExecuted are the beginnings of Redis errors after which a script did not run, or
// did not get beyond its reads, for certain: Redis checks the server's state before the
// first write, and the scripts write only after all their reads.
var notExecuted = []string{
	"NOSCRIPT ", "LOADING ", "BUSY ", "MOVED ", "ASK ", "TRYAGAIN ",
	"CLUSTERDOWN ", "MASTERDOWN ", "ERR max number of clients reached",
}

// rejectsWrites are the beginnings of Redis errors of a server that answers reads alone.
var rejectsWrites = []string{"READONLY ", "MISCONF ", "NOREPLICAS "}

// These errors of the client come before anything was written to a connection. They
// are recognised by their text, because the client has no values for them.
const (
	noNodes     = "redis: cluster has no nodes"
	noSentinels = "redis: all sentinels specified in configuration are unreachable"
)

// Classify puts an error of the client into one of the three classes. nil and redis.Nil
// are no errors. A wrapped redis.Nil is one: Sentinels know no such master.
func Classify(err error) error {
	var (
		reply redis.Error
		op    *net.OpError
	)
	switch {
	case err == nil, err == redis.Nil: //nolint:errorlint // see above
		return nil
	case errors.As(err, &reply):
		text := reply.Error()
		if strings.HasPrefix(text, "OOM ") {
			return &storeError{ErrFull, err}
		}
		begins := func(prefix string) bool { return strings.HasPrefix(text, prefix) }
		switch {
		case slices.ContainsFunc(rejectsWrites, begins):
			return &storeError{ErrRejectsWrites, err}
		case slices.ContainsFunc(notExecuted, begins):
			return &storeError{ErrUnavailable, err}
		}
		return &storeError{ErrBroken, err}
	case strings.HasPrefix(err.Error(), noNodes), strings.HasPrefix(err.Error(), noSentinels),
		errors.As(err, &op) && op.Op == "dial",
		errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout),
		errors.Is(err, redis.ErrPoolExhausted):
		return &storeError{ErrUnavailable, err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return &storeError{ErrUnknown, err}
	}
	return &storeError{ErrUnknown, err}
}

// A FieldError is an error in the configuration.
type FieldError struct {
	Field string // the setting, as the configuration file spells it: snake_case
	Value any    // what it is set to; text about the value where that may hold a password
	Want  string // what to write instead, as a phrase that follows "want"
}

// Wrong makes a FieldError.
func Wrong(field string, value any, want string) *FieldError { return &FieldError{field, value, want} }

func (e *FieldError) Error() string {
	return fmt.Sprintf("%s: %v is not usable: want %s", e.Field, e.Value, e.Want)
}
