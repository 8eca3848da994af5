package partition

import (
	"time"

	"github.com/redis/go-redis/v9"
)

// Patient has a store that nothing has used yet wait for answers as long as a busy machine, or one
// that stands still for a while, may take.
func Patient(s *Store) {
	for _, c := range []redis.UniversalClient{s.backend.In, s.backend.Out, s.backend.Background} {
		switch c := c.(type) {
		case *redis.Client:
			c.Options().ReadTimeout, c.Options().WriteTimeout = time.Minute, time.Minute
		case *redis.ClusterClient:
			c.Options().ReadTimeout, c.Options().WriteTimeout = time.Minute, time.Minute
		}
	}
}
