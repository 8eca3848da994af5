package job_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	luajob "github.com/spillway-io/spillway/lua/job"
	"github.com/spillway-io/spillway/lua/redistest"
)

// listener hears the channels of a shard.
func (s *shard) listen() (heard func() string) {
	s.t.Helper()
	sub := s.c.PSubscribe(ctx, strings.NewReplacer("{", `\{`, "}", `\}`).Replace(s.channel())+"*")
	s.t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(ctx); err != nil {
		s.t.Fatal(err)
	}
	messages := sub.Channel(redis.WithChannelSize(1000))
	return func() string {
		s.t.Helper()
		s.do("publish", s.channel()+"!end", "")
		var all []string
		for {
			select {
			case m := <-messages:
				name := strings.TrimPrefix(m.Channel, s.channel())
				if name == "!end" {
					return strings.Join(all, " ")
				}
				all = append(all, name+":"+m.Payload)
			case <-time.After(20 * time.Second):
				s.t.Fatal("no message in 20s")
			}
		}
	}
}

// Only the push that found the list empty tells, with its count.
func TestThePushThatFoundTheListEmptyWakes(t *testing.T) {
	on(t, func(t *testing.T, s *shard) {
		heard := s.listen()
		seqs := s.put("a", "one", "two", "three")
		s.put("a", "four")
		s.publish(group{queue: "b", bodies: bodies(1)}, group{queue: "b", bodies: bodies(2)}, group{queue: "c", delay: 9, bodies: bodies(1)})
		s.same("publish", heard(), "a:3 b:3")

		s.claim("a", 4)
		s.settle(settle{"a", seqs[0], 1, "requeue", 0}, settle{"a", seqs[1], 1, "nack", 0}, settle{"a", seqs[2], 1, "nack", 5000})
		s.same("settle", heard(), "a:2")
		s.settle(settle{"a", seqs[3-1] + 1, 1, "touch", 9})
		s.same("touch", heard(), "")
		s.claimAll("lane", "t", request{queues: []string{"a"}, count: 2})
		s.past("delay", "a", seqs[2])
		s.promote(due{"a", "delay", seqs})
		s.same("promote", heard(), "a:1")
		s.revert("lane", "t", "a")
		s.same("revert, others are there", heard(), "")
		s.claimAll("lane", "t", request{queues: []string{"a"}, count: 9})
		s.revert("lane", "t", "a")
		s.same("revert", heard(), "a:3")
		for _, job := range s.claim("a", 3) {
			s.settle(settle{"a", job.seq, 0, "bury", 0})
		}
		s.respawn("a", "respawn", 2, 0)
		s.same("respawn", heard(), "a:2")
		s.claim("a", 2)
		s.do("hset", s.key("j:a"), 5, "0000000000000 1 lost", 6, "0000000000000 1 lost")
		s.do("hincrby", s.ledger(), "published", 2)
		reply := s.must(luajob.Expire, s.common("a"), "a", "0", 100, 1, s.channel(), "publish")
		s.same("audit", reply[2:], []any{0, 2})
		s.same("audit", heard(), "a:2")
		s.exact("a", "b", "c")
	})
}

// A user without the right to the channels still moves jobs, whole.
func TestARejectedMessageLeavesTheCallWhole(t *testing.T) {
	t.Parallel()
	s := newShard(t, redistest.Start(t).Client())
	s.do("acl", "setuser", "default", "reset", "on", "nopass", "~*", "+@all", "resetchannels")
	seqs := s.put("a", "one", "two")
	s.claim("a", 2)
	s.same("settle", s.settle(settle{"a", seqs[0], 1, "nack", 0}), []int64{1})
	s.exact("a")
}

// In a cluster the message is SPUBLISH, whose channel has the slot of the keys.
func TestWakingInACluster(t *testing.T) {
	t.Parallel()
	master := redistest.StartMasters(t, 1).Masters[0]
	s := newShard(t, master.Client())
	sub := redis.NewClusterClient(&redis.ClusterOptions{Addrs: []string{master.Addr}}).SSubscribe(ctx, s.channel()+"a")
	defer sub.Close()
	if _, err := sub.Receive(ctx); err != nil {
		t.Fatal(err)
	}
	keys, argv := s.publishCall(group{queue: "a", bodies: bodies(2)})
	argv[4] = "spublish"
	s.must(luajob.Publish, keys, argv...)
	m, err := sub.ReceiveMessage(ctx)
	if err != nil || m.Payload != "2" {
		t.Errorf("got %v %v", m, err)
	}
	probe := s.must(luajob.PermissionProbe, []string{s.key("r:!p"), s.key("j:!p"), s.key("d:!p"), s.key("dd:!p")}, s.channel()+"!p", "spublish")
	s.same("probe", probe[1:], []any{0})
	s.same("claimed", fmt.Sprint(len(s.claim("a", 5))), 2)
}
