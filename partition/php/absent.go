package php

import (
	"context"
	"time"

	"github.com/spillway-io/spillway/partition/job"
)

// absent is what only namespaces of kind queue have. Acts are rejected; lists are empty, so that
// who shows all kinds needs to know no difference.
type absent struct{}

func (absent) Trace(context.Context, *job.Namespace, string, job.Ref) ([]job.TraceEvent, error) {
	return nil, job.ErrOtherKind
}
func (absent) Note(*job.Namespace, string, job.Ref, job.TraceEvent) {}
func (absent) Reschedule(context.Context, *job.Reschedule) error    { return job.ErrOtherKind }
func (absent) Decide(context.Context, *job.Decision) error          { return job.ErrOtherKind }
func (absent) PutSchedule(context.Context, *job.PutSchedule) error  { return job.ErrOtherKind }
func (absent) Trigger(context.Context, *job.Trigger) error          { return job.ErrOtherKind }
func (absent) Forget(context.Context, *job.Namespace, string) error { return job.ErrOtherKind }

func (absent) Clock(context.Context, *job.Namespace, string) (int64, error) {
	return 0, job.ErrOtherKind
}

func (absent) GetSchedule(context.Context, *job.Namespace, string, string) (job.Schedule, error) {
	return job.Schedule{}, job.ErrOtherKind
}

func (absent) Schedules(context.Context, *job.Namespace, string, string,
	int) ([]job.Schedule, bool, error) {
	return nil, false, nil
}

func (absent) PauseSchedule(context.Context, *job.Namespace, string, string,
	bool) (bool, int64, error) {
	return false, 0, job.ErrOtherKind
}

func (absent) DeleteSchedule(context.Context, *job.Namespace, string, string, string, int64) error {
	return job.ErrOtherKind
}

func (absent) Fire(context.Context, *job.Namespace, int, int64, []*job.Firing) (int64, error) {
	return 0, job.ErrOtherKind
}

func (absent) Register(context.Context, *job.Namespace, string, int64,
	time.Duration) (job.Owner, error) {
	return job.Owner{}, job.ErrOtherKind
}

func (absent) Heartbeat(context.Context, *job.Namespace, string, time.Duration) (job.Owner, error) {
	return job.Owner{}, job.ErrOtherKind
}

func (absent) Deregister(context.Context, *job.Namespace, string) error { return job.ErrOtherKind }

func (absent) Owners(context.Context, *job.Namespace) ([]job.Owner, error) { return nil, nil }

func (absent) CountOwned(context.Context, *job.Namespace, []job.Owner) error { return nil }

func (absent) Owned(context.Context, *job.Namespace, string) ([]job.OwnedSchedule, error) {
	return nil, job.ErrOtherKind
}

func (absent) ScanSchedules(context.Context, *job.Namespace, string, int,
	func([]job.Schedule) bool) (bool, error) {
	return true, nil
}

func (absent) NextTicks(_ context.Context, _ *job.Namespace, _ string, _ time.Duration,
	n int) ([]int64, error) {
	return make([]int64, n), nil
}
