package partition

import (
	"reflect"
	"unsafe"

	"github.com/alicebob/miniredis/v2"
)

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
