package admin

import "time"

// Build is the version of the program.
type Build struct {
	Version  string `json:"version"`
	Revision string `json:"revision"`
	Go       string `json:"go_version"`
}

// Info is what does not change while the process runs, and who asks.
type Info struct {
	Build
	Role        string     `json:"role"`
	StartedAtMS int64      `json:"started_at_ms"`
	NowMS       int64      `json:"now_ms"`
	Store       StoreState `json:"store"`
	You         You        `json:"you"`
	MaskFields  []string   `json:"mask_fields"`
	Namespaces  []string   `json:"namespaces"` // of partitions
	Queues      []string   `json:"queues"`     // namespaces of kind queue
}

// You is who asks.
type You struct {
	Name string `json:"name"`
	Role string `json:"role"`
}

func (s *Server) info(r *request) (any, error) {
	i := Info{
		Build: s.cfg.Build, Role: r.view.Role, StartedAtMS: s.began.UnixMilli(), NowMS: time.Now().UnixMilli(), Store: r.view.store(),
		You: You{r.who.name, r.who.role.String()}, MaskFields: r.view.MaskFields, Namespaces: []string{}, Queues: []string{},
	}
	if i.MaskFields == nil {
		i.MaskFields = []string{}
	}
	for _, ns := range r.view.Store.Namespaces() {
		i.Namespaces = append(i.Namespaces, ns.Name)
	}
	for _, store := range r.view.Jobs {
		for _, ns := range store.Namespaces() {
			i.Queues = append(i.Queues, ns.Name)
		}
	}
	return i, nil
}
