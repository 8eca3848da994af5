package main

import (
	"bytes"
	"context"
	"embed"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"time"
)

//go:embed game queries
var files embed.FS

// questions are the files in queries, in the order in which the page shows their answers.
var questions = []string{"concurrent_players", "funnel", "client_drops"}

// A site is what browsers get: the game, the JavaScript client, and answers of ClickHouse.
type site struct{ listen, sdk, clickHouse string }

// start serves the site until stop is called.
func (s site) start() (stop func(), err error) {
	game, err := fs.Sub(files, "game")
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", s.listen)
	if err != nil {
		return nil, err
	}
	mux := http.NewServeMux()
	mux.Handle("/", http.FileServerFS(game))
	mux.HandleFunc("/reporter.js", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, s.sdk) })
	mux.HandleFunc("/answers", func(w http.ResponseWriter, r *http.Request) {
		for _, question := range questions {
			answer, err := s.ask(r.Context(), question)
			if err != nil {
				http.Error(w, err.Error(), http.StatusBadGateway)
				return
			}
			_, _ = fmt.Fprintf(w, "%s\n%s\n", question, answer)
		}
	})
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = server.Serve(l) }() // until stop
	return func() { _ = server.Close() }, nil
}

// ask returns ClickHouse's answer to a question, as text for people.
func (s site) ask(ctx context.Context, question string) (string, error) {
	sql, err := files.ReadFile("queries/" + question + ".sql")
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.clickHouse, bytes.NewReader(sql))
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %.300s", question, text)
	}
	return string(text), err
}
