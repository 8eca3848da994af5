package schedule

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spillway-io/spillway/partition"
	"github.com/spillway-io/spillway/partition/job"
	"github.com/spillway-io/spillway/partition/schedule/cron"
)

// MaxRegistered is how many schedules a registration has at most.
const MaxRegistered = 500

// A Registration is all schedules of an owner, as one version of its code has them.
type Registration struct {
	Namespace *job.Namespace
	Owner     string
	Version   int64
	TTL       time.Duration // until its schedules stop to fire, without a heartbeat
	Schedules []Registered

	Until                                 time.Time
	Created, Replaced, Unchanged, Deleted int // schedules
}

// Registered is a schedule of a registration.
type Registered struct {
	Queue, Name string
	Spec        *Spec
}

// A RegisterError says which schedule of a registration was not put. Those before it were.
type RegisterError struct {
	Queue, Name string
	Err         error
}

func (e *RegisterError) Error() string {
	return fmt.Sprintf("schedule %s of queue %s: %v", e.Name, e.Queue, e.Err)
}

func (e *RegisterError) Unwrap() error { return e.Err }

// Stores are what a registration asks of a store; *job.Store has it.
type Stores interface {
	job.ScheduleOperations
	job.OwnerOperations
}

// ParseRegistered reads the schedules of a registration, {"schedules":[{"queue":…,"name":…, and
// the specification}]}, as strictly as Parse.
func ParseRegistered(text []byte) ([]Registered, error) {
	if err := eachOnce(text); err != nil {
		return nil, err
	}
	var body struct {
		Schedules []struct {
			Queue string `json:"queue"`
			Name  string `json:"name"`
			Spec
		} `json:"schedules"`
	}
	if err := decode(text, &body); err != nil {
		return nil, err
	}
	if n := len(body.Schedules); n > MaxRegistered || body.Schedules == nil {
		return nil, &FieldError{"schedules", fmt.Sprint(n), fmt.Sprintf("write the list of all, %d at most",
			MaxRegistered)}
	}
	list := make([]Registered, 0, len(body.Schedules))
	for i := range body.Schedules {
		s := &body.Schedules[i]
		var err error
		switch {
		case !partition.ValidOwnName(s.Queue):
			err = &FieldError{"queue", s.Queue, "write the name of a queue"}
		case !partition.ValidScheduleName(s.Name):
			err = &FieldError{"name", s.Name, "write a name of 1 to 128 letters, digits, dots, dashes and underscores"}
		case s.Owner != "":
			err = &FieldError{"owner", s.Owner, "is the one of the path"}
		default:
			err = s.complete(cron.Zone)
		}
		s.By = ""
		if err == nil {
			err = s.bounded()
		}
		if err != nil {
			return nil, &RegisterError{s.Queue, s.Name, err}
		}
		list = append(list, Registered{s.Queue, s.Name, &s.Spec})
	}
	return list, nil
}

// Register puts the schedules of an owner, and deletes those that an older version of it put
// and this one does not have. It is job.ErrOldVersion where a newer version is registered, also
// where that came between: what this one put until then the newer one has replaced or deletes.
// A repeat of a registration that failed goes on where that ended.
func (r *Registration) Register(ctx context.Context, store Stores) error {
	named := map[string]bool{}
	for _, s := range r.Schedules {
		if named[s.Queue+"/"+s.Name] {
			return &FieldError{"name", s.Name, "is given twice: write it once"}
		}
		named[s.Queue+"/"+s.Name] = true
	}
	o, err := store.Register(ctx, r.Namespace, r.Owner, r.Version, r.TTL)
	if err != nil {
		return err
	}
	r.Until = o.Until
	for _, s := range r.Schedules {
		s.Spec.Owner = r.Owner
		p, err := put(ctx, store, r.Namespace, s.Queue, s.Name, s.Spec, 0, r.Version)
		if errors.Is(err, job.ErrTooManySchedules) { // those that go make room
			deleted, failed := deleteOwned(ctx, store, r.Namespace, r.Owner, r.Version, named)
			if r.Deleted += deleted; failed == nil && deleted > 0 {
				p, err = put(ctx, store, r.Namespace, s.Queue, s.Name, s.Spec, 0, r.Version)
			}
		}
		if err != nil {
			return &RegisterError{s.Queue, s.Name, err}
		}
		switch p.Result {
		case job.Created:
			r.Created++
		case job.Replaced:
			r.Replaced++
		default:
			r.Unchanged++
		}
	}
	deleted, err := deleteOwned(ctx, store, r.Namespace, r.Owner, r.Version, named)
	r.Deleted += deleted
	return err
}

// DeleteOwned deletes all schedules of an owner.
func DeleteOwned(ctx context.Context, store Stores, ns *job.Namespace,
	owner string) (deleted int, err error) {
	return deleteOwned(ctx, store, ns, owner, -1, nil)
}

// deleteOwned deletes schedules of an owner that are not named; below is as of
// job.Store.DeleteSchedule.
func deleteOwned(ctx context.Context, store Stores, ns *job.Namespace, owner string, below int64,
	named map[string]bool) (deleted int, err error) {
	list, err := store.Owned(ctx, ns, owner)
	if err != nil {
		return 0, err
	}
	for _, s := range list {
		if named[s.Queue+"/"+s.Name] || below >= 0 && s.Version >= below {
			continue
		}
		err := store.DeleteSchedule(ctx, ns, s.Queue, s.Name, owner, below)
		if errors.Is(err, job.ErrNoSchedule) || errors.Is(err, job.ErrOtherOwner) {
			continue // somebody else deleted it, or put it meanwhile
		} else if err != nil {
			return deleted, err
		}
		deleted++
	}
	return deleted, nil
}

// ShownOwner is a service that registered schedules, as it is shown.
type ShownOwner struct {
	Owner   string `json:"owner"`
	Version int64  `json:"version"`
	State   string `json:"state"`              // registered, gone or ended
	UntilMS int64  `json:"until_ms,omitempty"` // when its registration ends, or ended
}

// ListedOwner is one of a list.
type ListedOwner struct {
	ShownOwner
	Owns int64 `json:"owns"` // schedules
}

// OwnerList is all owners of a namespace, by name.
type OwnerList struct {
	Owners []ListedOwner `json:"owners"`
}

// DescribeOwner is an owner as it is shown, by the clock of the store.
func DescribeOwner(store clock, o job.Owner) ShownOwner {
	shown := ShownOwner{Owner: o.Name, Version: o.Version, State: "registered"}
	if o.Until.IsZero() {
		shown.State = "ended"
		return shown
	}
	shown.UntilMS = o.Until.UnixMilli()
	if shown.UntilMS < nowOf(store) {
		shown.State = "gone"
	}
	return shown
}

// Owners lists the owners of a namespace.
func Owners(ctx context.Context, store job.OwnerReads, ns *job.Namespace) (OwnerList, error) {
	found, err := store.Owners(ctx, ns)
	if err == nil {
		err = store.CountOwned(ctx, ns, found)
	}
	list := OwnerList{Owners: make([]ListedOwner, len(found))}
	for i, o := range found {
		list.Owners[i] = ListedOwner{DescribeOwner(store, o), o.Schedules}
	}
	return list, err
}

// OwnerSchedules is an owner with its schedules.
type OwnerSchedules struct {
	ShownOwner
	Schedules []OwnedSchedule `json:"schedules"`
}

// OwnedSchedule is a schedule of an owner, and the version that put it.
type OwnedSchedule struct {
	Queue   string `json:"queue"`
	Name    string `json:"name"`
	Version int64  `json:"version"`
}

// ShowOwner is an owner with its schedules, by the clock of the store, or job.ErrNoOwner.
func ShowOwner(ctx context.Context, store showing, ns *job.Namespace, name string) (OwnerSchedules, error) {
	list, err := store.Owners(ctx, ns)
	if err != nil {
		return OwnerSchedules{}, err
	}
	at := slices.IndexFunc(list, func(o job.Owner) bool { return o.Name == name })
	if at < 0 {
		return OwnerSchedules{}, job.ErrNoOwner
	}
	has, err := store.Owned(ctx, ns, name)
	shown := OwnerSchedules{DescribeOwner(store, list[at]), make([]OwnedSchedule, len(has))}
	for i, s := range has {
		shown.Schedules[i] = OwnedSchedule(s)
	}
	return shown, err
}

// showing is what ShowOwner asks of a store.
type showing interface {
	clock
	job.OwnerOperations
}

// Delete removes a schedule, whoever owns it, or is job.ErrNoSchedule.
func Delete(ctx context.Context, store job.ScheduleOperations, ns *job.Namespace,
	queue, name string) error {
	for range putTries {
		s, err := store.GetSchedule(ctx, ns, queue, name)
		if err != nil {
			return err
		}
		err = store.DeleteSchedule(ctx, ns, queue, name, OwnerOf(s.Spec), -1)
		if !errors.Is(err, job.ErrOtherOwner) {
			return err
		}
	}
	return errBusy
}

// OwnerOf is the owner that a stored specification names, "" where there is none: also of one
// that cannot be read.
func OwnerOf(spec []byte) string {
	var s struct {
		Owner string `json:"owner"`
	}
	_ = json.Unmarshal(spec, &s)
	return s.Owner
}
