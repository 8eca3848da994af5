package chromium

import (
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"
)

// Page is a tab in a window of its own.
type Page struct {
	browser         *Browser
	target, session string
	loaded          chan struct{}
}

type object map[string]any

// Open opens a window and waits until its page has loaded. The pages of other windows stay
// visible.
func (b *Browser) Open(t testing.TB, url string) *Page {
	t.Helper()
	p := &Page{browser: b, loaded: make(chan struct{}, 1)}
	var opened struct{ TargetID, SessionID string }
	err := b.call("", "Target.createTarget", object{"url": "about:blank", "newWindow": true}, &opened)
	if err == nil {
		p.target = opened.TargetID
		err = b.call("", "Target.attachToTarget", object{"targetId": p.target, "flatten": true}, &opened)
	}
	if err == nil {
		p.session = opened.SessionID
		err = b.call(p.session, "Page.enable", nil, nil)
	}
	if err == nil {
		b.mu.Lock()
		b.loads[p.session] = p.loaded
		b.mu.Unlock()
		err = p.Go(url)
	}
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Go leaves the page for another and waits until that has loaded.
func (p *Page) Go(url string) error {
	select {
	case <-p.loaded: // of the page before
	default:
	}
	var went struct{ ErrorText string }
	if err := p.browser.call(p.session, "Page.navigate", object{"url": url}, &went); err != nil {
		return err
	}
	if went.ErrorText != "" {
		return fmt.Errorf("%s: %s", url, went.ErrorText)
	}
	select {
	case <-p.loaded:
		return nil
	case <-time.After(patience):
		return fmt.Errorf("%s: not loaded within %v", url, patience)
	}
}

// Close closes the tab as its user does: the page learns of it.
func (p *Page) Close() error {
	p.browser.mu.Lock()
	delete(p.browser.loads, p.session)
	delete(p.browser.records, p.session)
	p.browser.mu.Unlock()
	return p.browser.call("", "Target.closeTarget", object{"targetId": p.target}, nil)
}

// Eval evaluates an expression, waits for its value if it is a promise, and decodes it
// into result; nil drops it.
func (p *Page) Eval(expression string, result any) error {
	var answer struct {
		Result  struct{ Value json.RawMessage }
		Details *struct {
			Text      string
			Exception struct{ Description string }
		} `json:"exceptionDetails"`
	}
	err := p.browser.call(p.session, "Runtime.evaluate", object{"expression": expression,
		"awaitPromise": true, "returnByValue": true}, &answer)
	switch {
	case err != nil:
		return err
	case answer.Details != nil:
		return errors.New(answer.Details.Text + " " + answer.Details.Exception.Description)
	case result == nil || answer.Result.Value == nil:
		return nil
	}
	return json.Unmarshal(answer.Result.Value, result)
}

// Cover opens another tab in this one's window, so this page is hidden.
func (p *Page) Cover() error {
	return p.browser.call(p.session, "Runtime.evaluate", object{"expression": "void open('about:blank')",
		"userGesture": true}, nil)
}

// Resize gives the page a window of that size, in CSS pixels.
func (p *Page) Resize(width, height int) error {
	size := object{"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false}
	return p.browser.call(p.session, "Emulation.setDeviceMetricsOverride", size, nil)
}

// Prefer makes the system prefer a colour scheme, "dark" or "light", and no animations.
func (p *Page) Prefer(scheme string) error {
	features := []object{{"name": "prefers-color-scheme", "value": scheme},
		{"name": "prefers-reduced-motion", "value": "reduce"}}
	return p.browser.call(p.session, "Emulation.setEmulatedMedia", object{"features": features}, nil)
}

// Screenshot returns the page as PNG, as it looks in a window of that size.
func (p *Page) Screenshot(width, height int) ([]byte, error) {
	if err := p.Resize(width, height); err != nil {
		return nil, err
	}
	var shot struct{ Data []byte }
	err := p.browser.call(p.session, "Page.captureScreenshot", object{"format": "png"}, &shot)
	return shot.Data, err
}

// Press presses a key of the keyboard and lets go of it. key is as KeyboardEvent.key has it:
// "Enter", "Escape", "Tab", "ArrowRight" or one character.
func (p *Page) Press(key string) error {
	down := object{"type": "keyDown", "key": key, "code": key}
	switch code := map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowLeft": 37, "ArrowRight": 39}[key]; {
	case code != 0:
		down["windowsVirtualKeyCode"] = code
		if key == "Enter" {
			down["text"] = "\r"
		}
	default:
		down["text"] = key
	}
	if err := p.browser.call(p.session, "Input.dispatchKeyEvent", down, nil); err != nil {
		return err
	}
	return p.browser.call(p.session, "Input.dispatchKeyEvent", object{"type": "keyUp", "key": key,
		"code": key}, nil)
}
