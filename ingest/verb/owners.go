package verb

import (
	"context"
	"encoding/json"
	"time"

	"github.com/spillway-io/spillway/partition/schedule"
)

type ofOwner struct {
	Owner string `help:"The service."`
}

func listOwners(ctx context.Context, c *Call, _ *struct{}) (schedule.OwnerList, error) {
	return schedule.Owners(ctx, c.schedules, c.Namespace)
}

func getOwner(ctx context.Context, c *Call, q *ofOwner) (schedule.OwnerSchedules, error) {
	return schedule.ShowOwner(ctx, c.schedules, c.Namespace, q.Owner)
}

type beat struct {
	ofOwner
	TTL time.Duration `default:"30s" bounds:"1s..24h" help:"How long its schedules fire without a heartbeat."`
}

type register struct {
	beat
	Version int64           `required:"" bounds:"1..9007199254740991" help:"It rises with each deploy."`
	File    json.RawMessage `schema:"Registration"`
}

type registered struct {
	Created   int    `json:"created"`
	Deleted   int    `json:"deleted"`
	Owner     string `json:"owner"`
	Replaced  int    `json:"replaced"`
	State     string `json:"state"`
	Unchanged int    `json:"unchanged"`
	UntilMS   int64  `json:"until_ms"`
	Version   int64  `json:"version"`
}

// registerOwner notes that a service lives, and that these are its schedules.
func registerOwner(ctx context.Context, c *Call, q *register) (answer registered, err error) {
	r := &schedule.Registration{Namespace: c.Namespace, Owner: q.Owner, Version: q.Version, TTL: q.TTL}
	if r.Schedules, err = schedule.ParseRegistered(q.File); err != nil {
		return answer, err
	}
	for _, s := range r.Schedules {
		if err := c.fits(s.Spec); err != nil {
			return answer, err
		}
	}
	err = r.Register(ctx, c.schedules)
	return registered{r.Created, r.Deleted, r.Owner, r.Replaced, "registered", r.Unchanged, r.Until.UnixMilli(), r.Version}, err
}

func heartbeat(ctx context.Context, c *Call, q *beat) (schedule.ShownOwner, error) {
	o, err := c.schedules.Heartbeat(ctx, c.Namespace, q.Owner, q.TTL)
	return schedule.DescribeOwner(c.schedules, o), err
}

type deregister struct {
	ofOwner
	Schedules string `default:"keep" enum:"keep,delete" help:"With delete the service is forgotten, with all it has."`
}

type deregistered struct {
	Deleted int    `json:"deleted"`
	Owner   string `json:"owner"`
	State   string `json:"state"`
}

// deregisterOwner ends a registration.
func deregisterOwner(ctx context.Context, c *Call, q *deregister) (deregistered, error) {
	answer := deregistered{0, q.Owner, "ended"}
	err := c.schedules.Deregister(ctx, c.Namespace, q.Owner)
	if err != nil || q.Schedules == "keep" {
		return answer, err
	}
	if answer.Deleted, err = schedule.DeleteOwned(ctx, c.schedules, c.Namespace, q.Owner); err == nil {
		err = c.schedules.Forget(ctx, c.Namespace, q.Owner)
	}
	return answer, err
}

var ownerRows = []*Row{
	New("owners", "viewer", "GET /owners", "schedules owners",
		"List the services that registered schedules, and whether they live.",
		"owners -> OWNER ${owner}|STATE ${state}|VERSION ${version}|UNTIL ${until_ms}|>SCHEDULES ${owns}", listOwners),
	New("owner", "viewer", "GET /owners/{owner}", "", "A service, and its schedules.", "", getOwner),
	New("register", "", "PUT /owners/{owner}", "",
		"Register a service with all its schedules, which fire while it sends heartbeats.", "", registerOwner).publishes(),
	New("deregister", "", "DELETE /owners/{owner}", "", "End a registration. The schedules stay and do not fire.", "", deregisterOwner),
	New("heartbeat", "", "POST /owners/{owner}/heartbeat", "", "Say that a service lives.", "", heartbeat),
}
