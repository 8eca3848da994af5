package app

import (
	"cmp"
	"context"
	"net/http"

	"github.com/spillway-io/spillway/cmd/spillway/admin"
	"github.com/spillway-io/spillway/ingest"
	"github.com/spillway-io/spillway/ingest/lmstfy"
)

// lmstfyMounts are lmstfy's API on the data port; none without Config.Lmstfy.
func (a *App) lmstfyMounts(g *generation) []ingest.Mount {
	if !g.cfg.Lmstfy {
		return nil
	}
	log := a.log.Named("lmstfy")
	var pools lmstfy.Pools
	var gauged []lmstfy.GaugedPool
	for _, name := range g.file.Pools {
		pools = append(pools, lmstfy.Pool{Name: name, Engine: g.engines[name], Store: g.jobs[name]})
		gauged = append(gauged, lmstfy.GaugedPool{
			Name:    name,
			Store:   g.jobs[name],
			Backend: g.pools[name],
		})
	}
	cfg := lmstfy.Config{Pools: pools, AccessLog: &a.accessLog, Log: log}
	if g.cfg.LmstfyMetrics {
		cfg.Metrics = lmstfy.NewMetrics(g.metrics, lmstfy.NewGauges(gauged, log))
		for _, p := range gauged {
			cfg.Metrics.Watch(p.Backend)
		}
	}
	return []ingest.Mount{lmstfy.NewAPI(cfg).Mount()}
}

// lmstfyAdmin finds the handler of a path of lmstfy's admin API; nil without Config.Lmstfy.
func (a *App) lmstfyAdmin(g *generation) func(path string) http.Handler {
	if !g.cfg.Lmstfy {
		return nil
	}
	build := readBuild()
	handler := lmstfy.NewAdmin(lmstfy.AdminConfig{
		Control: a.control,
		Pools:   func() []string { return g.file.Pools },
		Queues: func(ctx context.Context, namespace string) ([]string, error) {
			for _, store := range g.jobs {
				if ns := store.Namespace(namespace); ns != nil {
					return store.Queues(ctx, ns)
				}
			}
			return nil, nil
		},
		Authorize: func(w http.ResponseWriter, r *http.Request, tokens bool) (string, bool) {
			if tokens {
				return a.admin.Authorize(w, r, admin.Admin)
			}
			return a.admin.Authorize(w, r, admin.Viewer)
		},
		Record: func(r *http.Request, action, namespace, detail string, err error) {
			a.admin.Record(r, admin.Act{Action: action, Namespace: namespace,
				Detail: detail + ", by lmstfy's API"}, err)
		},
		Version: lmstfy.Version{
			Commit:  cmp.Or(build.Revision, "unknown"),
			Date:    "unknown",
			Version: build.Version,
		},
		AccessLog: &a.accessLog,
		Log:       a.log.Named("lmstfy"),
	})
	return func(path string) http.Handler {
		if lmstfy.IsAdminPath(path) {
			return handler
		}
		return nil
	}
}
