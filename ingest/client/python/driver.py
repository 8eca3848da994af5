"""Drives the client for the conformance suites: a command a line, an answer a line."""

import base64
import datetime
import itertools
import json
import re
import sys
import threading
import time

import spillway


class Unspeakable(SystemExit):
    def __str__(self):
        raise ValueError("no text")


class Driver:
    def open(self, c, o):
        if "key_window" in o:
            o["_key_window"] = o.pop("key_window")
        if o.pop("throw_hooks", False):
            o.update({f"on_{what}": self.hook(f"{what}_hook") for what in ("drop", "error")})
        self.reporter = spillway.Reporter(c["url"], **o)

    def hook(self, name):
        calls = itertools.count(1)

        def fail(*_):
            n = next(calls)
            print(name, n, file=sys.stderr, flush=True)
            raise SystemExit(f"fault {n} of {name}")
        return fail

    def report(self, c, o):
        at = c.get("at")
        self.reporter.report(c["partition"], base64.b64decode(c["payload"]), time=at / 1000 if at else None)

    def flush(self, c, o):
        return {"ok": self.reporter.flush(c["timeout"] / 1000)}

    def close(self, c, o):
        return {"ok": self.reporter.close(c["timeout"] / 1000)}

    def counts(self, c, o):
        if "queue" in c:
            return self.queues_.counts(c["queue"])._asdict()
        return self.reporter.stats()._asdict()

    def queues(self, c, o):
        self.queues_ = spillway.Queues(c["url"], **o)

    def publish(self, c, o):
        payloads = [base64.b64decode(p) for p in c["payloads"]]
        if "at" in o:
            o["at"] = datetime.datetime.fromtimestamp(o["at"] / 1000, datetime.timezone.utc)
        if len(payloads) == 1:
            return self.queues_.publish(c["queue"], payloads[0], **o)._asdict()
        return self.queues_.publish_many(c["queue"], payloads, **o)._asdict()

    def claim(self, c, o):
        return {"jobs": [shown(j) for j in self.queues_.claim(c["queues"], **o)]}

    def settle(self, c, o):
        job, after, q = spillway.Job(c["queue"], c["id"], c["attempt"]), c.get("ms", 0) / 1000, self.queues_
        {
            "ack": lambda: q.ack(job, c.get("result")), "nack": lambda: q.nack(job, after, c.get("error")), "bury": lambda: q.bury(job, c.get("error")),
            "touch": lambda: q.touch(job, after), "progress": lambda: q.progress(job, c["progress"], c["note"], ttr=after), "requeue": lambda: q.requeue(job),
        }[c["do"]]()

    def get(self, c, o):
        return {"jobs": [shown(self.queues_.wait(c["queue"], c["id"], **o) if o else self.queues_.get(c["queue"], c["id"]))]}

    def delete(self, c, o):
        self.queues_.delete(c["queue"], c["id"])

    def work(self, c, o):
        self.lock, self.calls, self.handled, self.failed = threading.Lock(), {}, [], None
        self.now = {"running": 0, "most": 0, "errors": 0, "request_errors": 0}
        throws = o.pop("throw_hooks", False)

        def hook(name, fault):
            def call(*_):
                self.count(name, 1)
                if throws:
                    raise SystemExit(f"fault {self.now[name]} of {fault}")
            return call
        on_request_error = None if o.pop("no_hook", False) else hook("request_errors", "claim_hook")
        self.worker = spillway.Worker(
            self.queues_, c["queues"], self.handle, on_error=hook("errors", "job_hook"), on_request_error=on_request_error, **o)
        self.thread = threading.Thread(target=self.run, daemon=True)
        self.thread.start()

    def run(self):
        try:
            self.worker.run()
        except spillway.SpillwayError as e:
            self.failed = e

    def worked(self, c, o):
        with self.lock:
            return {**self.now, "handled": list(self.handled)}

    def stop(self, c, o):
        self.worker.stop()
        self.wait(c, o)

    def wait(self, c, o):
        self.thread.join()
        if self.failed:
            raise self.failed

    def count(self, name, n):
        with self.lock:
            self.now[name] += n
            self.now["most"] = max(self.now["most"], self.now["running"])

    def handle(self, job):
        act = job.json()
        with self.lock:
            self.calls[job.id] = calls = self.calls.get(job.id, 0) + 1
        self.count("running", 1)
        try:
            return self.act(job, act["do"] if calls <= act["attempts"] else "ok", act["ms"] / 1000)
        finally:
            self.count("running", -1)
            with self.lock:
                self.handled.append({"queue": job.queue, "id": job.id, "attempt": job.attempt, "cause": job.cause})

    def act(self, job, do, seconds):
        if do in ("sleep", "not_begun"):
            time.sleep(seconds)
        if do == "hang":
            job.ended.wait()
        failures = {
            "fail": ValueError("failed"), "throw": Unspeakable(), "permanent": spillway.Permanent("for good"),
            "retry": spillway.RetryIn("busy", seconds), "not_begun": spillway.NotBegun(), "hang": TimeoutError("hung"),
        }
        if do in failures:
            raise failures[do]
        return {"result": {"done": True}, "bad_result": b"\xff", "big_result": 5000 * "x"}.get(do)


def shown(job):
    payload = base64.b64encode(job.payload).decode()
    names = "queue", "id", "state", "attempt", "tries", "progress", "note", "result"
    return {"payload": payload, **{name: getattr(job, name) for name in names}}


def word(error):
    return re.sub(r"(?<!^)([A-Z])", r"_\1", type(error).__name__).lower()


TIMES = {
    "linger", "max_age", "timeout", "backoff_base", "backoff_max", "probe_every", "key_window", "delay", "ttl", "dedup", "ttr", "wait", "unique",
    "stop_timeout", "give_up_after",
}


def bench_events(url, n):
    with spillway.Reporter(url, linger=0.05) as reporter:
        laps = [b'{"event":"lap","kart":%d,"ms":63210}' % i for i in range(64)]
        for i in range(n):
            reporter.report(f"kart{i & 63}", laps[i & 63])
            while i & 255 == 0 and reporter.stats().pending > 5000:
                time.sleep(0.001)
        if not reporter.flush(60) or reporter.stats().acked != n:
            raise ValueError(reporter.stats())


def bench_jobs(url, n):
    done = itertools.count(1)
    worker = spillway.Worker(spillway.Queues(url), ["welcome"], lambda job: next(done) == n and worker.stop(), concurrency=16)
    worker.run()


def bench(what, url, n):
    began = time.perf_counter(), time.process_time()
    {"events": bench_events, "jobs": bench_jobs}[what](url, n)
    print(f"{n / (time.perf_counter() - began[0]):.0f} {(time.process_time() - began[1]) * 1e6 / n:.2f}")


if sys.argv[1:2] == ["bench"]:
    sys.exit(bench(sys.argv[2], sys.argv[3], int(sys.argv[4])))
driver = Driver()
for line in sys.stdin:
    c = json.loads(line)
    options = {name: value / 1000 if name in TIMES else value for name, value in (c.get("options") or {}).items()}
    try:
        answer = getattr(driver, c["op"])(c, options) or {}
    except spillway.SpillwayError as e:
        answer = {"error": word(e)}
    if c["op"] != "report":
        print(json.dumps(answer), flush=True)
