package load

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"time"

	"github.com/spillway-io/spillway/ingest/client"
)

// feed sends events of the sample games until ctx ends, as a client does: over
// HTTP, in small batches, with retries.
func feed(ctx context.Context, p *client.Poster, pace demoPace) error {
	tick := time.NewTicker(pace.every)
	defer tick.Stop()
	for n := len(demoGames); ; n = pace.events { // the first ones at once, so that something is seen
		batch := make([][]byte, n)
		for i := range batch {
			batch[i] = demoEvent()
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

// demoGames create one event each, in the form of the mixed route.
var demoGames = []func() string{
	func() string {
		return fmt.Sprintf(`{"partition":"kart.%s","data":{"type":"lap","player":"p%02d","track":"%s","lap":%d,"ms":%d}}`,
			choose("eu-1", "eu-2", "us-1"), rand.N(24), choose("sunset", "glacier", "harbour"), 1+rand.N(3),
			41_000+rand.N(9_000))
	},
	func() string {
		return fmt.Sprintf(`{"partition":"chess.%s","data":{"type":"move","game":"g%d","ply":%d,"san":"%s","clock_ms":%d}}`,
			choose("blitz", "rapid"), 4000+rand.N(40), 1+rand.N(80),
			choose("e4", "Nf3", "O-O", "Bxc6", "Qd2", "exd5"), rand.N(180_000))
	},
	func() string {
		return fmt.Sprintf(`{"partition":"arena.match-7","data":{"type":"hit","by":"p%d","on":"p%d","weapon":"%s","damage":%d,"zone":"%s"}}`,
			rand.N(5), 5+rand.N(5), choose("bow", "axe", "frost"), 5+rand.N(90), choose("north", "mid", "south"))
	},
	func() string {
		return fmt.Sprintf(`{"partition":"farm.island-%d","data":{"type":"harvest","player":"p%03d","crop":"%s","yield":%d}}`,
			1+rand.N(3), rand.N(200), choose("wheat", "pumpkin", "tea"), 1+rand.N(12))
	},
}

func demoEvent() []byte { return append([]byte(demoGames[rand.N(len(demoGames))]()), '\n') }

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

func choose(of ...string) string { return of[rand.N(len(of))] }
