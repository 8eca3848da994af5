package admin

import (
	"context"
	"net/http"
	"strings"
	"time"

	"github.com/spillway-io/spillway/ingest/wire"
)

// A Reload reads the configuration again and returns the settings that changed. After an
// error, which names each mistake, what ran before goes on.
type Reload func(ctx context.Context) (changed []string, err error)

// reloadTimeout bounds a reload, which may wait for batches that are under way.
const reloadTimeout = time.Minute

func reloaded(changed []string) Act {
	return Act{Action: "reload", Detail: strings.Join(changed, ", ")}
}

func (s *Server) reload(r *request) (any, error) {
	if err := r.decode(&struct{}{}); err != nil {
		return nil, err
	}
	if s.cfg.Reload == nil {
		return nil, &refusal{http.StatusNotFound, wire.CodeNoSuchRoute, "this process cannot reload"}
	}
	ctx, cancel := s.acting(r, reloadTimeout)
	defer cancel()
	changed, err := s.cfg.Reload(ctx)
	s.record(r, reloaded(changed), err)
	if err != nil {
		return nil, badRequest(err.Error())
	}
	if changed == nil {
		changed = []string{}
	}
	return map[string]any{"changed": changed}, nil
}
