package lmstfy

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spillway-io/spillway/partition/control"
)

// errLimitExists: POST does not replace a limit.
var errLimitExists = errors.New("the token has a limit")

// limiter is the answer to a change of a limit.
type limiter struct {
	Limiter control.Limit `json:"limiter"`
}

// setLimit sets the limit of a token. POST makes one, PUT also replaces one.
func (a *Admin) setLimit(w http.ResponseWriter, r *http.Request, _ string) {
	var limit control.Limit
	err := json.NewDecoder(r.Body).Decode(&limit)
	switch {
	case err != nil:
		answerText(w, http.StatusBadRequest, "the body should be a JSON object with the numbers read, write and interval")
		return
	case limit.Read == 0 && limit.Write == 0:
		answerText(w, http.StatusBadRequest, "read or write should be > 0")
		return
	case limit.Interval <= 0:
		answerText(w, http.StatusBadRequest, "interval should be > 0")
		return
	}
	name, hash := tokenOf(r)
	status := http.StatusOK
	err = a.Control.ChangeLimit(r.Context(), name, hash, func(now *control.Limit) (*control.Limit, error) {
		if r.Method == http.MethodPost && now != nil {
			return nil, errLimitExists
		}
		return &limit, nil
	})
	a.Record(r, "limit_token", name, fmt.Sprintf("name %s, read %d and write %d in %d s",
		control.ShortName(hash), limit.Read, limit.Write, limit.Interval), err)
	switch {
	case errors.Is(err, errLimitExists):
		answerText(w, http.StatusInternalServerError,
			fmt.Sprintf("throttler token(%s) has already exists", r.PathValue("token")))
		return
	case errors.Is(err, control.ErrNotFound):
		answerText(w, http.StatusNotFound, "token not found")
		return
	case err != nil:
		a.rejected(w, "set a limit", err)
		return
	}
	if r.Method == http.MethodPost {
		status = http.StatusCreated
	}
	answer(w, status, limiter{limit})
}

func (a *Admin) showLimit(w http.ResponseWriter, r *http.Request, _ string) {
	name, hash := tokenOf(r)
	t := a.Control.Snapshot().Token(name, hash)
	if t == nil || t.Limit == nil {
		answer(w, http.StatusNotFound, nil)
		return
	}
	answer(w, http.StatusOK, t.Limit)
}

// deleteLimit deletes a limit. Its answer is the same where there is none.
func (a *Admin) deleteLimit(w http.ResponseWriter, r *http.Request, _ string) {
	name, hash := tokenOf(r)
	err := a.Control.ChangeLimit(r.Context(), name, hash,
		func(*control.Limit) (*control.Limit, error) { return nil, nil })
	a.Record(r, "limit_token", name, "name "+control.ShortName(hash)+", none", err)
	if err != nil && !errors.Is(err, control.ErrNotFound) {
		a.rejected(w, "delete a limit", err)
		return
	}
	answer(w, http.StatusOK, map[string]string{"msg": "success"})
}

// listLimits lists the limits of all namespaces. A token that is stored as a hash goes by its
// name.
func (a *Admin) listLimits(w http.ResponseWriter, _ *http.Request, _ string) {
	type row struct {
		Namespace string         `json:"namespace"`
		Token     string         `json:"token"`
		Limiter   *control.Limit `json:"limiter"`
	}
	rows := []row{}
	snapshot := a.Control.Snapshot()
	for _, ns := range snapshot.Namespaces() {
		for _, t := range snapshot.Tokens(ns.Name) {
			if t.Limit == nil {
				continue
			}
			text := t.Text
			if text == "" {
				text = t.Name
			}
			rows = append(rows, row{ns.Name, text, t.Limit})
		}
	}
	answer(w, http.StatusOK, rows)
}
