package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"regexp"
	"time"

	"github.com/spillway-io/spillway/bench"
	spillway "github.com/spillway-io/spillway/ingest/client"
)

// feed sends events of the sample games until ctx ends, as a client does: over
// HTTP, in small batches, with retries.
func feed(ctx context.Context, p *spillway.Poster, pace demoPace) error {
	tick := time.NewTicker(pace.every)
	defer tick.Stop()
	for n := bench.SampleGames; ; n = pace.events { // the first ones at once, so that something is seen
		batch := make([][]byte, n)
		for i := range batch {
			batch[i] = bench.SampleEvent()
		}
		if _, err := p.Post(ctx, batch); err != nil && ctx.Err() == nil {
			return fmt.Errorf("feed: %w", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// demoHighlighter marks, for a terminal, the lines that no sample game sent.
type demoHighlighter struct{ to io.Writer }

var ofSampleGame = regexp.MustCompile(`^\{"namespace":"default","partition":"(kart|chess|arena|farm)\.`)

func (h demoHighlighter) Write(lines []byte) (int, error) {
	var marked []byte
	for line := range bytes.Lines(lines) {
		if ofSampleGame.Match(line) {
			marked = append(marked, line...)
		} else {
			marked = fmt.Appendf(marked, "\x1b[1m%s\x1b[0m   ◀ your event\n", bytes.TrimSuffix(line, []byte("\n")))
		}
	}
	if _, err := h.to.Write(marked); err != nil {
		return 0, err
	}
	return len(lines), nil
}
