package jobs

import (
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spillway-io/spillway/partition"
)

// A Worker is what a worker said of itself with its last claim. Nobody checks it.
type Worker struct {
	Name     string `json:"name"`
	Children int    `json:"children"`
	Busy     int    `json:"busy"`
	Memory   int64  `json:"memory"` // of its children, bytes
	Version  string `json:"version"`

	Queues []string `json:"queues"`  // that it claims from
	Token  string   `json:"token"`   // its name; "": the namespace needs none
	SeenMS int64    `json:"seen_ms"` // Unix ms, of its last claim
	// SinceMS is when this process heard of it first, Unix ms.
	SinceMS int64 `json:"since_ms"`
}

// headerWorker is how a worker says it, as a JSON object.
const headerWorker = "X-Spillway-Worker"

// Bounds of what is known of workers: a namespace pays with its own places.
const (
	maxWorkers   = 1000 // of a namespace; the one that was silent for longest makes room
	maxWorkerLen = 1 << 10
	workerStays  = 10 * time.Minute // after its last claim: the longest wait of one
)

// workers are those of the namespaces of an Engine, as this process heard of them.
type workers struct {
	mu sync.Mutex
	of map[string]map[string]*Worker
}

// hear notes what a claim says of its worker. What is no such object is none.
func (w *workers) hear(c *call) {
	text := c.Ctx.Request.Header.Peek(headerWorker)
	if len(text) == 0 || len(text) > maxWorkerLen {
		return
	}
	said := &Worker{}
	if json.Unmarshal(text, said) != nil || !partition.ValidNamespace(said.Name) {
		return
	}
	said.Version = strings.ToValidUTF8(said.Version[:min(len(said.Version), 64)], "")
	said.Queues = slices.Clone(c.queues[:min(len(c.queues), 8)])
	said.Token, said.SeenMS = c.key.Name(), time.Now().UnixMilli()
	w.note(c.namespace.Name, said)
}

func (w *workers) note(namespace string, said *Worker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.of == nil {
		w.of = map[string]map[string]*Worker{}
	}
	all := w.of[namespace]
	if all == nil {
		all = map[string]*Worker{}
		w.of[namespace] = all
	}
	if all[said.Name] == nil && len(all) == maxWorkers {
		var silent *Worker // one, also where the clock was set back and all others seem to be later
		for _, other := range all {
			if silent == nil || other.SeenMS < silent.SeenMS {
				silent = other
			}
		}
		delete(all, silent.Name)
	}
	said.SinceMS = said.SeenMS
	if before := all[said.Name]; before != nil {
		said.SinceMS = before.SinceMS
	}
	all[said.Name] = said
}

// Workers are those that claimed from a namespace within the last ten minutes, through this process, by
// name.
func (e *Engine) Workers(namespace string) []Worker {
	e.workers.mu.Lock()
	defer e.workers.mu.Unlock()
	list := []Worker{}
	oldest := time.Now().Add(-workerStays).UnixMilli()
	for name, w := range e.workers.of[namespace] {
		if w.SeenMS < oldest {
			delete(e.workers.of[namespace], name)
			continue
		}
		list = append(list, *w)
	}
	if len(list) == 0 {
		delete(e.workers.of, namespace)
	}
	slices.SortFunc(list, func(a, b Worker) int { return strings.Compare(a.Name, b.Name) })
	return list
}
