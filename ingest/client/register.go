package spillway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// A Registration is all schedules of a service, as one version of its code has them.
type Registration struct {
	Owner   string // the service: 1 to 128 letters, digits, dots, dashes and underscores
	Version int64  // 1 or more; it rises with each deploy
	// TTL is how long the schedules fire without a heartbeat, 1s to 24h; default 30s.
	TTL       time.Duration
	Schedules []RegisteredSchedule // 500 at most
}

// A RegisteredSchedule is one of a Registration.
type RegisteredSchedule struct {
	Queue, Name string
	Spec        Spec
}

// Register puts the schedules of a service, deletes those that an older version of it put and
// this one does not have, and sends a heartbeat every third of the TTL until ctx ends: the
// schedules fire so long, and ticks after it are not made up for. Each process of the service
// may run it. It returns nil when ctx ends; ErrOldVersion where a newer version is registered,
// also where that comes later; ErrOtherOwner where a schedule is another's; ErrInvalid tells
// the field that is wrong. While the service is away it goes on trying.
//
// It does not deregister at the end, as other processes of the service may live on;
// [Schedules.Deregister] does.
func (s Schedules) Register(ctx context.Context, r Registration) error {
	if r.TTL == 0 {
		r.TTL = 30 * time.Second
	}
	body := struct {
		Schedules []specForm `json:"schedules"`
	}{[]specForm{}}
	for _, one := range r.Schedules {
		form := one.Spec.form()
		form.Queue, form.Name = one.Queue, one.Name
		body.Schedules = append(body.Schedules, form)
	}
	text, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("spillway: write specifications: %w", err)
	}
	query := url.Values{"ttl": {r.TTL.String()}}
	beat := jobRequest{method: http.MethodPost, path: ownerPath(r.Owner) + "/heartbeat", query: query}
	put := jobRequest{method: http.MethodPut, path: ownerPath(r.Owner),
		contentType: "application/json", body: text,
		query: url.Values{"ttl": {r.TTL.String()}, "version": {strconv.FormatInt(r.Version, 10)}}}
	ticker := time.NewTicker(max(r.TTL/3, time.Millisecond))
	defer ticker.Stop()
	for next := put; ; {
		var said struct {
			Owner   string
			Version int64
		}
		_, err := s.jobs.do(ctx, next, &said)
		var failed *Error
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, ErrNoOwner): // it was deregistered, or the store lost it
			next = put
		case errors.As(err, &failed) && failed.temporary():
		case err != nil:
			return err
		case said.Owner != r.Owner:
			return errForeign
		case said.Version > r.Version:
			return ErrOldVersion
		default:
			next = beat
		}
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
	}
}

// Deregister ends the registration of a service, or returns ErrNoOwner. Its schedules stay, and
// do not fire.
func (s Schedules) Deregister(ctx context.Context, owner string) error {
	return s.deregister(ctx, owner, "keep")
}

// DeleteOwner removes a service and all its schedules, or returns ErrNoOwner. Any version of it
// may register again.
func (s Schedules) DeleteOwner(ctx context.Context, owner string) error {
	return s.deregister(ctx, owner, "delete")
}

func (s Schedules) deregister(ctx context.Context, owner, what string) error {
	var said struct{ State string }
	_, err := s.jobs.do(ctx, jobRequest{method: http.MethodDelete, path: ownerPath(owner),
		query: url.Values{"schedules": {what}}}, &said)
	return err
}

func ownerPath(owner string) string { return "_owners/" + url.PathEscape(owner) }
