package job_test

import (
	"fmt"
	"strings"
	"testing"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

func TestEveryScriptDoesWhatItsHeaderDeclares(t *testing.T) {
	t.Parallel()
	scripttest.EveryScript(t, len(luajob.All()), scripttest.Includes(t, "..", "."))
}

func TestNoScriptHasWhatTheEmbeddedStoreMiscompiles(t *testing.T) {
	t.Parallel()
	scripttest.NothingMiscompiled(t, luajob.All())
}

func (s *shard) probe(queue string) []any {
	s.t.Helper()
	keys := []string{s.key("r:" + queue), s.key("j:" + queue), s.key("d:" + queue), s.key("dd:" + queue + ":probe")}
	return s.must(luajob.PermissionProbe, keys, s.channel()+queue, "publish")
}

func TestPermissionProbeRunsAndLeavesNothing(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		s.put("a", bodies(3)...)
		before := s.snapshot()
		if reply := s.probe("!permission-probe"); len(reply) != 2 || reply[1] != int64(0) {
			t.Errorf("got %v, want {now, 0}", reply)
		}
		s.same("the shard", s.snapshot(), before)
	})
}

func TestPermissionProbeTriesEveryCommandOfTheScripts(t *testing.T) {
	t.Parallel()
	scripttest.ProbeTries(t, luajob.PermissionProbe, luajob.All(), 100)
}

func TestPermissionProbeNamesEachMissingRight(t *testing.T) {
	t.Parallel()
	s := newShard(t, redistest.Start(t).Client())
	for _, right := range []string{"hscan", "lpos", "publish", "hrandfield", "del", "zmscore"} {
		s.do("acl", "setuser", "default", "reset", "on", "nopass", "~*", "&*", "+@all", "-"+right)
		reply := s.probe("!permission-probe")
		if num(reply[1]) != 1 || !strings.EqualFold(fmt.Sprint(reply[2]), right) {
			t.Errorf("without %s: got %v", right, reply[1:])
		}
	}
	s.do("acl", "setuser", "default", "reset", "on", "nopass", "~*", "+@all", "resetchannels", "&other:*")
	if reply := s.probe("!permission-probe"); num(reply[1]) != 1 || reply[2] != "publish" {
		t.Errorf("without the channels: got %v", reply[1:])
	}
}
