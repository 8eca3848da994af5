package partition

import (
	"reflect"
	"unsafe"

	"github.com/alicebob/miniredis/v2"
)

// maxRememberedNames is how many key names the embedded store may keep, about 160
// bytes each, before it asks how many of them still are of keys.
const maxRememberedNames = 1 << 16

// dropUnusedNames drops what a miniredis keeps about every name that a key ever
// had: a version for WATCH, which nobody here uses, and the time of its last use
// for OBJECT IDLETIME. It never drops them itself, not even with FLUSHALL; and
// names come and go without end, with partitions and idempotency keys. Its API has
// no way to them but to move every living key to another database, by a script
// that would hold everybody up. So its maps are replaced, under its lock: those two
// by empty ones and the others by copies, for a map of Go stays as big as it ever
// was. That happens when three names of four are of keys that are gone, so a new
// name pays for it once. It returns false where this miniredis has no such maps.
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
