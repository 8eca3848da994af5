package backend

import (
	"crypto/rand"
	"fmt"
	"reflect"
	"sync/atomic"
	"time"
	"unsafe"

	"github.com/alicebob/miniredis/v2"
)

// embeddedServer is a miniredis in this process, for one store or for some that follow
// one another.
type embeddedServer struct {
	*miniredis.Miniredis
	password string
	end      func()
	stores   atomic.Int64 // that are open
}

func openEmbedded() (*embeddedServer, error) {
	server, password, err := startEmbedded()
	if err != nil {
		return nil, err
	}
	s := &embeddedServer{Miniredis: server, password: password, end: expireEmbeddedKeys(server)}
	return s.share(), nil
}

// startEmbedded runs a miniredis in this process. It listens on a loopback port,
// because an in-process pipe has no buffer and a large pipeline would block itself. The
// password keeps other users of the machine out.
func startEmbedded() (server *miniredis.Miniredis, password string, err error) {
	server, password = miniredis.NewMiniRedis(), rand.Text()
	server.RequireAuth(password)
	if err := server.Start(); err != nil {
		return nil, "", fmt.Errorf("start the embedded store: %w", err)
	}
	return server, password, nil
}

// share is for one store more, which has to be open while another is.
func (s *embeddedServer) share() *embeddedServer {
	s.stores.Add(1)
	return s
}

// close ends the server with its last store.
func (s *embeddedServer) close() {
	if s.stores.Add(-1) == 0 {
		s.end()
	}
}

// expireEmbeddedKeys moves the clock of the TTLs of a miniredis, which otherwise stands
// still; the results of idempotent produces have TTLs. It also bounds the names that
// the miniredis remembers. end stops both and the server. (The ClockTTL of miniredis
// would visit all keys at every command.)
func expireEmbeddedKeys(server *miniredis.Miniredis) (end func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case now := <-tick.C:
				server.FastForward(now.Sub(last))
				dropUnusedNames(server)
				last = now
			}
		}
	}()
	return func() {
		close(stop)
		<-stopped
		server.Close()
	}
}

// maxRememberedNames is how many key names the embedded store may remember, about 160
// bytes each, before it checks how many of them still have a key.
const maxRememberedNames = 1 << 16

// dropUnusedNames drops what miniredis remembers about every name that a key ever had:
// a version for WATCH and the last use for OBJECT IDLETIME. Nothing here uses either.
// miniredis never drops them, not even with FLUSHALL, and partitions and idempotency
// keys bring new names all the time. Its API could only move every key to another
// database, with a script that blocks everything. So the maps are replaced by
// reflection, under its lock: those two by empty maps, the others by copies, because a
// Go map never shrinks. That happens when three of four names have no key any more. It
// returns false where this version of miniredis has no such maps.
func dropUnusedNames(server *miniredis.Miniredis) (known bool) {
	db := reflect.ValueOf(server.DB(0)).Elem()
	for _, name := range []string{"keys", "keyVersion", "lru"} {
		if db.FieldByName(name).Kind() != reflect.Map {
			return false
		}
	}
	server.Lock()
	defer server.Unlock()
	if n := db.FieldByName("keyVersion").Len(); n <= maxRememberedNames || n <= 4*db.FieldByName("keys").Len() {
		return true
	}
	for i := range db.NumField() {
		field := db.Field(i)
		if field.Kind() != reflect.Map {
			continue
		}
		m := reflect.NewAt(field.Type(), unsafe.Pointer(field.UnsafeAddr())).Elem()
		fresh := reflect.MakeMap(m.Type())
		if name := db.Type().Field(i).Name; name != "keyVersion" && name != "lru" {
			for each := m.MapRange(); each.Next(); {
				fresh.SetMapIndex(each.Key(), each.Value())
			}
		}
		m.Set(fresh)
	}
	return true
}
