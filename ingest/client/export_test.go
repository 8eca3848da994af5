package spillway

import "time"

// WithKeyWindow is cfg with another keyWindow; 0 is the default.
func (c ReporterConfig) WithKeyWindow(d time.Duration) ReporterConfig {
	c.keyWindow = d
	return c
}
