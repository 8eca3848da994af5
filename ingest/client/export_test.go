package client

import "time"

// WithKeyWindow is cfg with another keyWindow; 0 is the default.
func (c Config) WithKeyWindow(d time.Duration) Config {
	c.keyWindow = d
	return c
}
