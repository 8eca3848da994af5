package chromium

import (
	"encoding/json"
	"slices"
	"sync"
)

// Record is what a page asked of the network, and what went wrong in it.
type Record struct {
	mu               sync.Mutex
	requests, errors []string
}

// Watch records what the page does from now on, also after Go.
func (p *Page) Watch() (*Record, error) {
	record := &Record{}
	p.browser.mu.Lock()
	p.browser.records[p.session] = record
	p.browser.mu.Unlock()
	for _, domain := range []string{"Network.enable", "Runtime.enable", "Log.enable"} {
		if err := p.browser.call(p.session, domain, nil, nil); err != nil {
			return nil, err
		}
	}
	return record, nil
}

// Requests are the URLs the page asked for, in order.
func (r *Record) Requests() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.requests)
}

// Errors are exceptions that nothing caught, warnings and errors of the console, and what the
// browser itself reports, such as violations of a policy.
func (r *Record) Errors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.errors)
}

func (r *Record) add(m message) {
	var event struct {
		Request struct{ URL string }
		Type    string
		Args    []struct{ Value, Description any }
		Entry   struct{ Level, Text, URL string }
		Details struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	if json.Unmarshal(m.Params, &event) != nil {
		return // of a form that none of the events below has
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case m.Method == "Network.requestWillBeSent":
		r.requests = append(r.requests, event.Request.URL)
	case m.Method == "Runtime.exceptionThrown":
		r.errors = append(r.errors, event.Details.Text+" "+event.Details.Exception.Description)
	case m.Method == "Log.entryAdded" && (event.Entry.Level == "error" || event.Entry.Level == "warning"):
		r.errors = append(r.errors, event.Entry.Text+" "+event.Entry.URL)
	case m.Method == "Runtime.consoleAPICalled" && (event.Type == "error" || event.Type == "warning"):
		text, _ := json.Marshal(event.Args) // it came as JSON
		r.errors = append(r.errors, string(text))
	}
}
