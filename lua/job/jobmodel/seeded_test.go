package jobmodel_test

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-io/spillway/lua/job/jobmodel"
	"github.com/spillway-io/spillway/lua/redistest"
	"github.com/spillway-io/spillway/lua/scripttest"
)

// seeded is a mistake in a script, made on purpose.
type seeded struct{ script, old, new string }

// Each of these bugs, put into the text of a script, must make the walks in lockstep
// differ. Otherwise they do not compare what they seem to.
var seededBugs = map[string]seeded{
	"sequences start again":                            {"publish", "math.max(now_us, account[1] + 1)", "now_us"},
	"one job too many":                                 {"publish", "live + count - (over and 1 or 0) > max_jobs", "live + count > max_jobs + 1"},
	"one key too many":                                 {"publish", "math.min(unique, 1) > max_keys", "math.min(unique, 1) > max_keys + 1"},
	"a unique key is not kept":                         {"publish", "redis.call('SET', KEYS[g.unique]", "redis.call('EXISTS', KEYS[g.unique]"},
	"a unique key is not looked up":                    {"publish", "double = remembered(unique)", "double = remembered(unique) and nil"},
	"a unique key is not counted":                      {"publish", "remember(unique, window, 1)", "keyed[KEYS[unique]] = seq_text(seq) .. ' 1'"},
	"a double in one call is stored":                   {"publish", "keyed[KEYS[key]] or redis.pcall('GET', KEYS[key])", "redis.pcall('GET', KEYS[key])"},
	"one queue too many":                               {"publish", "known + 1 > max_queues", "known > max_queues"},
	"dead jobs are beyond the quota":                   {"publish", "local live = published -", "local live = published - 1 -"},
	"a key is not kept":                                {"publish", "redis.call('SET', KEYS[g.key]", "redis.call('EXISTS', KEYS[g.key]"},
	"a caller's id is not kept":                        {"publish", "redis.call('HSET', KEYS[6 + 4 * g.i], g.id, seq_text(g.seq))", ""},
	"a caller's id outlives its job":                   {"publish", "if not record then", "if false then"},
	"a caller's id outlives its job's ttl":             {"publish", "lives and not over then", "lives then"},
	"a caller's id of a leased job is free":            {"publish", "tonumber(leased or 0) <= now", "true"},
	"a caller's id of a lapsed job is not":             {"publish", "tonumber(leased or 0) <= now", "not leased"},
	"a caller's id of a dead job is free":              {"publish", "not dead and tonumber(leased", "tonumber(leased"},
	"a job whose id is taken stays":                    {"publish", "remove(k, { slots = slots }, ARGV[6 + g.i], g.over, g.id)", ""},
	"a job whose id is taken is not counted":           {"publish", "redis.call('HINCRBY', ledger, 'expired', 1)", ""},
	"a head that expires is looked at too late":        {"publish", "math.min(ends, now + rest)", "now + rest"},
	"a delayed job is ready at once":                   {"publish", "g.wait > 0 and int(now + g.wait)", "false"},
	"a publish into a list with jobs wakes":            {"publish", "if length == pushed then", "if true then"},
	"a publish wakes nobody":                           {"publish", "wake(command, channel, ARGV[6 + i], length, pushed)", ""},
	"an expired job is claimed":                        {"claim", "elseif ends > 0 and ends <= now then", "elseif ends > 0 and ends < now then"},
	"one try too many":                                 {"claim", "attempt >= tries and last_deadline", "attempt > tries and last_deadline"},
	"the attempt is not counted":                       {"claim", "in_pieces(redis.call, 'HSET', attempts, more)", ""},
	"the lane's last claim is forgotten":               {"claim", "local text = { ARGV[1] }", "local text = { '' }"},
	"a claim leases nothing":                           {"claim", "local leased = in_pieces(redis.pcall, 'ZADD', lease, scores)", "local leased = 0"},
	"a claim of a full answer drops the rest":          {"claim", "put_back(r, ids, x)", ""},
	"a claim of a full answer turns the rest":          {"claim", "for x = #ids, from, -1 do", "for x = from, #ids do"},
	"a claim keeps the id of what expired":             {"claim", "drop_id(u, caller_id(job[2]), job[1])", ""},
	"a claim does not count what expired":              {"claim", "totals.expired = totals.expired + #fields", ""},
	"a claim does not say what is left":                {"claim", "left = redis.call('LLEN', KEYS[6 + 3 * i])", "left = 0"},
	"a tombstone is a lost job":                        {"claim", "left = redis.call('HINCRBY', tombstones, queue, -missing)", "left = -missing"},
	"a job acked twice in a call counts twice":         {"ack", "quick = false\n    end\n    seen[seq]", "end\n    seen[seq]"},
	"an ack keeps the attempts":                        {"ack", "redis.call('HDEL', attempts, unpack(members))", "#members"},
	"an ack keeps the caller's id":                     {"ack", "drop_id(k.u, ids[x], seqs[x])", ""},
	"an ack of a job that was never claimed":           {"ack", "local class = claimed and undone[x] ~= 'moved'", "local class = undone[x] ~= 'moved'"},
	"an ack leaves no tombstone":                       {"ack", "redis.call('HINCRBY', k.tombstones, queue, 1)", ""},
	"an ack does not count the dead down":              {"ack", "totals.dead = totals.dead - 1", ""},
	"an empty queue stays in the index":                {"ack", "redis.pcall('ZREM', queues, queue)", ""},
	"an empty queue keeps its tombstones":              {"ack", "redis.pcall('HDEL', tombstones, queue)", ""},
	"an ack finds expired jobs":                        {"ack", "local over = is_over(record, now)", "local over = false"},
	"a job that expired is acked before its sweep":     {"ack", "totals.expired = totals.expired + 1", ""},
	"a lapsed lease holds an expired job":              {"settle", "if is_over(record, now) then", "if false then"},
	"get shows lapsed jobs that expired":               {"get", "if ms and (ends == 0 or ends > now or tonumber(ms) > now) then", "if ms then"},
	"anybody settles":                                  {"settle", "job.attempt > 0 and job.attempt ~= attempt", "false"},
	"a touch grants another try":                       {"settle", "local mark = (last and 0.5 or 0)", "local mark = 0"},
	"a requeue counts":                                 {"settle", "add(counted, member, int(attempt - 1))", "add(counted, member, int(attempt))"},
	"a requeue takes the job of another claim":         {"settle", "job.ms > 0 and math.floor(score) ~= job.ms", "false"},
	"a requeue of the last try is gone":                {"settle", "math.floor(score) ~= job.ms", "score ~= job.ms"},
	"a requeue ignores a touch before it":              {"settle", "leased[member] = now + job.ms + mark", ""},
	"a requeue goes to the tail":                       {"settle", "k.head[#k.head + 1] = job.seq", "k.tail[#k.tail + 1] = job.seq"},
	"requeued jobs change places":                      {"settle", "for x = #k.head, 1, -1 do", "for x = 1, #k.head do"},
	"a nack of the first claim forgets it":             {"settle", "add(counted, member, '1')", ""},
	"a nack is never the last":                         {"settle", "job.verb == 'nack' and last", "false"},
	"a delay counts from 1970":                         {"settle", "add(due, int(now + job.ms), member)", "add(due, int(job.ms), member)"},
	"jobs of any queue die":                            {"settle", "if keeps and ends and", "if ends and"},
	"an expired job dies":                              {"settle", "(ends == 0 or ends > now) then\n    redis.call('ZADD', k.d", "true then\n    redis.call('ZADD', k.d"},
	"a bury counts as a nack":                          {"settle", "job.verb == 'nack' and 'nacked' or 'buried'", "'nacked'"},
	"a lapse counts as a nack":                         {"promote", "'lapsed' or 'undecided'", "'nacked' or 'undecided'"},
	"a dead job shows no reason":                       {"get", "death_reason(ms)", "0"},
	"the dead letters show no reason":                  {"dead_page", "death_reason(died)", "0"},
	"a paused queue gives jobs":                        {"claim", "empty[i] = stopped[i] and true", ""},
	"a paused queue says that it has jobs left":        {"claim", "and not stopped[i] and", "and"},
	"a resume wakes nobody":                            {"pause", "wake(ARGV[6], ARGV[5], name, length, length)", ""},
	"a second pause begins anew":                       {"pause", "before and string.match(before, '^%d+') or int(now)", "int(now)"},
	"a resume leaves the pause":                        {"pause", "redis.call('HDEL', paused, name)", "redis.call('HEXISTS', paused, name)"},
	"claims are not counted for lists":                 {"claim", "redis.pcall('HSET', taken, ARGV[4 + i], int(count))", ""},
	"a list of a set begins at the first of its score": {"list", "<= member then", "< member then"},
	"a list of a set skips those of its score":         {"list", "if redis.call('ZRANGE', zset, int(middle), int(middle))[1] <= member then", "if true then"},
	"a list shows expired jobs":                        {"list", "ends > 0 and ends <= now and not", "false and not"},
	"an ack keeps the errors":                          {"ack", "drop_errors(k.u, seqs)", ""},
	"a purge keeps the errors":                         {"purge", "\n    drop_errors(u, seqs)\n", "\n"},
	"a job that expires at its death keeps its errors": {"settle", "  drop_errors(k.u, { seq })\n  local state = ends", "  local state = ends"},
	"an error forgets those before":                    {"settle", "if older and not foreign(older) then", "if false then"},
	"an ack keeps the progress":                        {"ack", ", fields[2 * x] = '!' .. seq, '%' .. seq", " = '!' .. seq, nil"},
	"a first progress is not counted":                  {"settle", "add(counted, member, '1')\nend", "end"},
	"a requeue keeps the progress":                     {"settle", "in_pieces(redis.pcall, 'HDEL', k.u, dropped)", ""},
	"a later requeue keeps the progress":               {"settle", "if first then", "if first and attempt == 1 then"},
	"get shows no progress":                            {"get", "texts[2] or ''", "''"},
	"the errors of a dead job are not shown":           {"dead_page", "errors and not foreign(errors) and errors or ''", "''"},
	"revert ignores the token":                         {"revert", "string.sub(text, 1, #prefix) ~= prefix", "false"},
	"revert ignores the deadline":                      {"revert", "scores[x] and math.floor(tonumber(scores[x])) == deadlines[x]", "scores[x]"},
	"revert counts the attempt":                        {"revert", "int(attempt - 1)", "int(attempt)"},
	"revert turns the jobs":                            {"revert", "for x = #k.head, 1, -1 do", "for x = 1, #k.head do"},
	"revert can be repeated":                           {"revert", "redis.call('DEL', out)", "redis.call('GET', out)"},
	"promote trusts what was read":                     {"promote", "if score and math.abs(score) <= now then", "if score then"},
	"a lapse forgets the attempt":                      {"promote", "in_pieces(redis.call, 'HSET', attempts, once)", ""},
	"a last lapse is not the last":                     {"promote", "        if last then\n", "        if false then\n"},
	"a head that expired is not counted":               {"promote", "totals.expired = totals.expired + 1\n    else\n      missing", "else\n      missing"},
	"a lapse looks at no head":                         {"promote", "if alone and k.lapsed and mortal(k) then", "if false then"},
	"a head is looked at an hour later in any case":    {"promote", "next_look = ends and ends > 0 and math.min(ends, now + rest) or now + rest", "next_look = now + rest"},
	"promote wakes nobody":                             {"promote", "wake(command, channel, k.name, length, pushed)", ""},
	"a respawned job has two tries":                    {"respawn", "int(tries + 1) .. rest", "int(tries + 2) .. rest"},
	"a respawn begins attempts anew":                   {"respawn", "redis.call('HSET', attempts, unpack(counted))", ""},
	"a respawned job keeps its ttl":                    {"respawn", "ttl > 0 and string.format('%013.0f', now + ttl)", "false"},
	"a respawned job stays dead":                       {"respawn", "totals.dead = -#seqs", ""},
	"a respawn takes any reason":                       {"respawn", "if reason > 0 and death_reason(score) ~= reason then", "if false then"},
	"a respawn takes the young":                        {"respawn", "if age > 0 and score > now - age then", "if false then"},
	"a respawn takes any error":                        {"respawn", "return last and string.find(last, part, 1, true)", "return true"},
	"a respawn by name trusts the caller's id":         {"respawn", "if record and (caller_id(record) or '') == id then", "if record then"},
	"a job named twice is respawned twice":             {"respawn", "seq and not seen[seq] and redis", "seq and redis"},
	"a count deletes":                                  {"respawn", "if #seqs == 0 or verb == 'count' then", "if #seqs == 0 then"},
	"deleted dead jobs keep their ids":                 {"respawn", "drop_id(u, caller_id(records[x]), seq)", ""},
	"purge keeps the attempts":                         {"purge", "redis.call('HDEL', attempts, unpack(members))", "#members"},
	"purge keeps the ids":                              {"purge", "drop_id(u, id_of(seq), seq)", ""},
	"purge of all leaves what is not ready":            {"purge", "if state == 'all' and redis.call('LLEN', r) == 0 then", "if false then"},
	"expire takes leased jobs":                         {"expire", "not redis.call('ZSCORE', k.lease, seq .. ' ' .. name)", "true"},
	"expire takes the dead":                            {"expire", "and not redis.call('ZSCORE', k.d, seq) then", "then"},
	"an unlisted job leaves a tombstone":               {"expire", "unlisted = not redis.call('LPOS', k.r, job[1])", ""},
	"the audit pushes delayed jobs":                    {"expire", "not redis.call('ZSCORE', k.delay, seq .. ' ' .. name) and", ""},
	"the audit pushes ready jobs":                      {"expire", "and not redis.call('LPOS', k.r, seq)", ""},
	"peek shows expired jobs":                          {"peek", "(ends == 0 or ends > now)", "true"},
	"get shows expired jobs":                           {"get", "if ends > 0 and ends <= now then", "if false then"},
	"one lease too many":                               {"claim", "limit.most - limit.used", "limit.most + 1 - limit.used"},
	"leases are not counted":                           {"claim", "marks[#marks + 1], marks[#marks + 2] = '#' .. limit.name, int(limit.used)", ""},
	"a claim without a slot leaves no word":            {"claim", "redis.call('HSET', slots, '?' .. limit.name, limit.how)", ""},
	"a claim asks others for what has no slot":         {"claim", "return -1125899906842624", ""},
	"an ack keeps its slot":                            {"ack", "totals.slots.free(name, k.r, seqs[x])", ""},
	"an acked job is not kept":                         {"ack", "keep_acked(ledger, KEYS[7 + 4 * n], keep, now, kept)", ""},
	"kept jobs are not counted":                        {"ack", "redis.call('HINCRBY', ledger, 'kept', #jobs)", "0"},
	"kept jobs that are over still count":              {"ack", "redis.call('HINCRBY', ledger, 'kept', -#seqs)", ""},
	"one kept job too many of a shard":                 {"ack", "(held - 4 * (q.all - total)) / 5)", "(held - 4 * (q.all - total)) / 5) - 1"},
	"a kept job forgets its attempts":                  {"ack", "tonumber(claims[x] or 1) or 1", "1"},
	"a deleted job is kept":                            {"ack", "if done[x] == 1 and records[x] then", "if done[x] > 0 and records[x] then"},
	"kept jobs are never over":                         {"drop_kept", "'-inf', int(now))", "'-inf', '0')"},
	"what became of kept jobs stays":                   {"drop_kept", "seq, '!' .. seq\n  end\n  in", "seq, seq\n  end\n  in"},
	"nobody looks at kept jobs again":                  {"drop_kept", "redis.call('ZADD', index, oldest[2], q.name)", ""},
	"a freed slot wakes nobody":                        {"ack", "wake(string.match(how, '^%S+'), string.match(how, '%S+$'), queue, ended, ended)", ""},
	"a deleted job keeps its slot":                     {"ack", "    totals.slots.free(queue, k.r, seq)\n  end\n  if redis.call('HDEL', k.j, seq) == 0 then", "  end\n  if redis.call('HDEL', k.j, seq) == 0 then"},
	"a nack keeps its slot":                            {"settle", "totals.slots.free(k.name, k.r, job.seq)", ""},
	"a lapse keeps its slot":                           {"promote", "totals.slots.free(k.name, k.r, seqs[x])", ""},
	"a revert keeps its slot":                          {"revert", "slots.free(owner[x].name, owner[x].r, seqs[x])", ""},
	"a purge keeps slots":                              {"purge", "totals.slots.free(queue, k.r, seq)", ""},
	"a call keeps any number of bytes":                 {"ack", "copied = copied +", "copied = 0 *"},
	"counts forget the tombstones":                     {"counts", "(tonumber(redis.call('HGET', KEYS[3], ARGV[i]) or 0) or 0)", "0"},
}

// firstInLockstep are the first walks that find a bug, where that is not the first of all.
var firstInLockstep = map[string]int64{
	"a bury counts as a nack": 1, "a caller's id of a lapsed job is not": 1, "a caller's id outlives its job's ttl": 1,
	"a claim keeps the id of what expired": 1, "a delay counts from 1970": 1,
	"a job whose id is taken is not counted": 1, "a job whose id is taken stays": 1,
	"a list of a set skips those of its score": 1, "a list shows expired jobs": 1, "a nack is never the last": 1,
	"a nack of the first claim forgets it": 1, "a respawn takes any reason": 1, "a respawn takes the young": 1,
	"a respawned job stays dead": 1, "an ack does not count the dead down": 1, "claims are not counted for lists": 1,
	"dead jobs are beyond the quota": 1, "deleted dead jobs keep their ids": 1, "expire takes the dead": 1,
	"get shows expired jobs": 1, "one job too many": 1, "the attempt is not counted": 1,
	"the dead letters show no reason": 1, "a requeue of the last try is gone": 2, "a second pause begins anew": 2,
	"a touch grants another try": 2, "one queue too many": 2, "a deleted job keeps its slot": 3,
	"a job named twice is respawned twice": 3, "a lapse counts as a nack": 3, "a last lapse is not the last": 3,
	"a respawn begins attempts anew": 3, "a respawned job has two tries": 3, "a respawned job keeps its ttl": 3,
	"an ack keeps the attempts": 3, "get shows lapsed jobs that expired": 4, "promote wakes nobody": 4,
	"the errors of a dead job are not shown": 5, "a requeue keeps the progress": 6, "a respawn takes any error": 6,
	"an error forgets those before": 6, "purge keeps the ids": 8, "a lapse looks at no head": 9,
	"an ack keeps the errors": 9, "purge keeps the attempts": 9, "purge of all leaves what is not ready": 11,
	"requeued jobs change places": 12, "a count deletes": 13, "a dead job shows no reason": 16,
	"a kept job forgets its attempts": 16, "a revert keeps its slot": 17, "promote trusts what was read": 19,
	"a requeue takes the job of another claim": 20, "anybody settles": 20,
	"a respawn by name trusts the caller's id": 25, "revert ignores the deadline": 25,
	"a claim of a full answer drops the rest": 26, "a claim of a full answer turns the rest": 26,
	"a caller's id outlives its job": 27, "an empty queue keeps its tombstones": 33,
	"a requeue ignores a touch before it": 37, "a requeue counts": 58, "an unlisted job leaves a tombstone": 68,
	"an expired job is claimed": 72, "an expired job dies": 77, "a caller's id of a dead job is free": 78,
	"a caller's id of a leased job is free": 78, "a double in one call is stored": 78,
	"a later requeue keeps the progress": 78, "a purge keeps slots": 78, "a purge keeps the errors": 78,
	"nobody looks at kept jobs again": 78, "revert counts the attempt": 78,
}

func TestLockstepFindsEverySeededBug(t *testing.T) {
	t.Parallel()
	addr := redistest.Start(t, "--databases", fmt.Sprint(len(seededBugs)+1)).Addr
	var databases atomic.Int64
	for name, bug := range scripttest.Bugs(seededBugs, func(b seeded) string { return b.script }) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			found := false
			texts := testTexts(t, func(name, text string) string {
				if name != bug.script {
					return text
				}
				found = strings.Contains(text, bug.old)
				return strings.Replace(text, bug.old, bug.new, 1)
			})
			if !found {
				t.Fatalf("%s.lua no longer holds %q", bug.script, bug.old)
			}
			client := redis.NewClient(&redis.Options{Addr: addr, DB: int(databases.Add(1)), DisableIdentity: true})
			t.Cleanup(func() { _ = client.Close() })
			for n := range int64(400) {
				seed := firstInLockstep[name] + n
				if _, err := walkInLockstep(client, texts, seed, jobmodel.Setting{Busy: true}); err != nil {
					if strings.Contains(err.Error(), "compiling script") {
						t.Fatal(err)
					}
					t.Logf("walk %d: %.150v", seed, err)
					return
				}
			}
			t.Error("400 walks saw nothing")
		})
	}
}
