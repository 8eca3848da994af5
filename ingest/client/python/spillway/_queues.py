"""Publishes, claims and settles the jobs of a namespace's queues."""

from __future__ import annotations

import base64
import datetime
import json
import os
import re
import threading
import time
import urllib.parse
import uuid
from typing import Any, Mapping, NamedTuple, Optional, Sequence

from ._http import (
    CODES, Connection, Empty, Endpoint, Gone, Invalid, NoJob, SpillwayError, Temporary, Unknown, backoff, buffer, compact, encode, foreign,
    parse, seconds,
)

MAX_ANSWER = 64 << 20
MAX_AFTER = 30 * 24 * 3600.0  # the longest time that a nack may give
MAX_ERROR = 1 << 10  # bytes of an error that are sent
MAX_RESULT = 4 << 10  # bytes of a result


class Job:
    """A job of a queue. published, expires and acked are Unix seconds by the service's clock; 0: unknown, never, not."""

    def __init__(self, queue: str, id: str, attempt: int = 0, form: Optional[dict[str, Any]] = None) -> None:
        f = form or {}
        self.queue, self.id, self.attempt = queue, id, attempt  # attempt: deliveries so far, with this one; 0: unknown, of a dead job
        self.tries: int = f.get("tries", 0)  # deliveries at most
        self.payload = base64.b64decode(f.get("data", ""), validate=True)
        self.attributes: dict[str, str] = f.get("attributes") or {}
        self.published, self.expires, self.acked = (f.get(name + "_ms", 0) / 1000 for name in ("published", "expires", "acked"))
        self.state: str = f.get("state", "")  # of get, peek and wait: ready, prepared, delayed, leased, dead, acked; gone: it ended unkept
        self.reason: str = f.get("reason", "")  # why it is dead
        self.errors: list[dict[str, Any]] = f.get("errors") or []  # of get: why attempts failed, the newest first
        self.progress: Optional[int] = f.get("progress")  # of get, with note: what its worker said with progress
        self.note: str = f.get("note", "")
        self.result: Any = f.get("result")  # of get and wait: what its ack said
        self.ended = threading.Event()  # set when its handler is to end, because of cause:
        self.cause = ""  # lease_lost: it comes again elsewhere; stopped: the worker stops
        self._deadline: int = f.get("deadline_ms", 0)
        self._ttr: float = f.get("ttr_ms", 60_000) / 1000  # that it was claimed for

    def __repr__(self) -> str:
        names = "queue", "id", "attempt", "tries", "state", "payload"
        return f"Job({', '.join(f'{name}={getattr(self, name)!r:.80}' for name in names)})"

    def json(self) -> Any:
        """The payload, which is JSON."""
        return json.loads(self.payload)


class Published(NamedTuple):
    """What became of a publish."""

    ids: list[str]  # of the jobs, in their order
    repeated: bool  # an earlier publish with the same key stored them
    exists: bool  # a job with the same id exists, or one is unique; nothing was stored
    changed: bool  # that job was changed, as on_conflict says


class Counts(NamedTuple):
    """The jobs of a queue. delayed and leased are -1 where the service cannot tell them apart; pending is their sum."""

    ready: int
    delayed: int
    leased: int
    pending: int
    dead: int


class _Lines(NamedTuple):
    body: bytes  # of a bulk


class Queues:
    """The queues of a namespace of the service at url. It keeps nothing: each call is a request, and raises what became
    of it, an error of SpillwayError. Any thread may use it. Times are in seconds.

    timeout bounds one attempt, beyond what a claim waits. While the service cannot be reached, is overloaded or limits
    the rate, a call makes so many attempts; between them it waits a random time up to min(backoff_max, backoff_base·2^n).
    """

    def __init__(
        self, url: str, *, namespace: str = "default", token: str = "", timeout: float = 10.0, attempts: int = 4,
        backoff_base: float = 0.1, backoff_max: float = 5.0,
    ) -> None:
        seconds(timeout=timeout, backoff_base=backoff_base, backoff_max=backoff_max)
        if timeout <= 0 or attempts < 1 or backoff_base < 0 or backoff_max < backoff_base:
            raise ValueError("timeout is not positive, attempts below 1, or backoff_max below backoff_base")
        self._endpoint = Endpoint(url, namespace, token)
        self._timeout, self._attempts, self.backoff = timeout, attempts, (backoff_base, backoff_max)
        self._idle: list[Connection] = []  # connections without a request
        self._pid = os.getpid()

    def publish(
        self, queue: str, payload: Any, *, delay: float = 0, at: Optional[datetime.datetime] = None, ttl: float = 0,
        tries: int = 0, id: str = "", shards: int = 0, key: str = "", dedup: float = 0, on_end: str = "",
        attributes: Mapping[str, str] = {}, unique: float = 0, unique_key: str = "", on_conflict: str = "",
    ) -> Published:
        """Stores a job, and returns when the service has it: bytes as they are, anything else as JSON.

        Attempts in vain do not make it twice. After Unknown, repeat it with a key of your own, which makes a repeat within
        dedup (0: 2 minutes) store nothing. For unique seconds no other job is stored under unique_key, or id, whatever becomes
        of it; on_conflict is what a double does to it while it is delayed: keep, replace or extend. 0 and "" are the
        service's defaults.
        """
        seconds(delay=delay, ttl=ttl, dedup=dedup, unique=unique)
        if isinstance(payload, _Lines):
            body, kind = payload.body, "application/x-ndjson"
        else:
            body, kind = encode(payload), "application/octet-stream"
        if not body:
            raise Empty("the payload is empty")
        said, _ = self._call("POST", _checked(queue), {
            "delay": _duration(delay), "at": at.astimezone().isoformat() if at else "", "ttl": _duration(ttl), "tries": tries, "id": id,
            "shards": shards, "dedup": _duration(dedup) if key else "", "on_end": on_end,
            "unique": _duration(unique), "unique_key": unique_key, "on_conflict": on_conflict,
            **{"attribute." + name: value for name, value in attributes.items()},
        }, body, kind, key or uuid.uuid4().hex, dedup or 120.0)
        if "evicted" in said:
            raise buffer()
        ids = said.get("ids")
        if not isinstance(ids, list) or not ids or not all(isinstance(i, str) and i for i in ids):
            raise foreign()
        return Published(ids, bool(key and said.get("repeated")), bool(said.get("exists")), bool(said.get("changed")))

    def publish_many(self, queue: str, payloads: Sequence[Any], **options: Any) -> Published:
        """Stores several jobs, all or none, with the options of publish: 1000 and 1 MiB with the service's defaults."""
        lines = [encode(p) for p in payloads]
        if not lines or not all(lines):
            raise Empty("a payload is empty, or there is none")
        if any(b"\n" in line or line.endswith(b"\r") for line in lines):
            raise Invalid("a payload has a line break: publish it alone", code="bad_ndjson")
        return self.publish(queue, _Lines(b"\n".join(lines) + b"\n"), **options)

    def claim(self, queues: Sequence[str], *, count: int = 1, ttr: float = 0.0, wait: float = 0.0, _attempts: int = 0,
              _connection: Optional[Connection] = None) -> list[Job]:
        """Leases ready jobs of queues, the most wanted queue first, for ttr (0: as a rule for the queue says, or 60). It waits so
        long for the first.

        Each is to be given to one of ack, nack, bury and requeue in time, or it comes again. Worker does all this.
        """
        seconds(ttr=ttr, wait=wait)
        query = {"count": count, "ttr": _duration(ttr), "wait": _duration(wait)}
        path = ",".join(map(_checked, queues)) or _checked("")
        said, _ = self._call("POST", path + "/claim", query, wait=wait, attempts=_attempts, connection=_connection)
        if not isinstance(said.get("jobs"), list) or len(said["jobs"]) > count:
            raise foreign()
        jobs = [_job(form) for form in said["jobs"]]
        if any(j.queue not in queues for j in jobs):
            raise foreign()
        return jobs

    def ack(self, job: Job, result: object = None) -> None:
        """Says that a job is done: it does not come again, even if its lease is over. Gone: it was acked before.

        result, if any, is JSON of 4 KiB at most, which wait and follow-ups tell.
        """
        self._settle(job, "ack", result=result)

    def nack(self, job: Job, after: float = 0.0, error: object = None) -> None:
        """Gives a job back, to be ready again after up to 30 days. error is why, which get shows."""
        self._settle(job, "nack", after, error)

    def bury(self, job: Job, error: object = None) -> None:
        """Gives a job up: it is dead, and stays to be looked at."""
        self._settle(job, "bury", 0.0, error)

    def requeue(self, job: Job) -> None:
        """Gives a job back to the head of its queue, as if it had not been claimed. It is sent once."""
        self._settle(job, "requeue", attempts=1)

    def touch(self, job: Job, ttr: float) -> None:
        """Leases a job for ttr from now on. Gone: the lease was over."""
        self._settle(job, "touch", ttr)

    def progress(self, job: Job, percent: int, note: str = "", *, ttr: float = 0) -> None:
        """Says how far the work got, in percent, and a note of which 200 bytes are kept: get has both. It is a touch, for ttr
        or as long as the job was claimed for."""
        self._settle(job, "touch", ttr or job._ttr, more={"progress": percent, "note": note})

    def defer(self, job: Job, ttr: float) -> None:
        """Leases a job for ttr from now on; somebody else, who has its queue, id and attempt, settles it."""
        self._settle(job, "defer", ttr)

    def _settle(self, job: Job, do: str, after: float = 0.0, error: object = None, attempts: int = 0, result: object = None,
                more: dict[str, Any] = {}) -> None:
        line = {**settlement(job, do, after, error, result), **more}
        line.pop("deadline_ms", None)  # a touch may have moved it
        if do == "touch":
            job._deadline = 0
        failed = self._settle_all(job.queue, [line], attempts)[0]
        if failed is not None:
            raise failed

    def _settle_all(self, queue: str, lines: Sequence[dict[str, Any]], attempts: int = 0, connection: Optional[Connection] = None,
                    timeout: float = 0) -> list[Optional[SpillwayError]]:
        """Sends settlements of one queue together, and returns what became of each: None, Gone or another error."""
        body = "".join(compact(line) + "\n" for line in lines).encode("utf-8", "replace")
        said, maybe = self._call("POST", _checked(queue) + "/settle", {}, body, "application/x-ndjson", attempts=attempts,
                                 connection=connection, timeout=timeout)
        results, errors = said.get("results"), []  # type: ignore[var-annotated]
        if not isinstance(results, list) or len(results) != len(lines) or not all(isinstance(r, dict) for r in results):
            raise foreign()
        for r in results:
            code, state = r.get("error"), r.get("state")
            if isinstance(code, str):
                errors.append(CODES.get(code, Invalid)(str(r.get("message", "")), status=200, code=code))
            elif not isinstance(state, str) or not state:
                raise foreign()
            else:  # gone, after an attempt whose answer was lost, is most likely because of that
                errors.append(Gone("the lease is over") if state == "gone" and not maybe else None)
        return errors

    def get(self, queue: str, id: str) -> Job:
        """Returns a job, in whatever state it is, or raises NoJob."""
        return self.wait(queue, id, 0)

    def wait(self, queue: str, id: str, wait: float = 30.0) -> Job:
        """Returns a job once it has ended: acked where a rule keeps it, gone where none does, dead; after wait, 10 minutes at
        most, in the state that it is in; or raises NoJob, also of one that ended unkept before. So look at state first."""
        seconds(wait=wait)
        path = f"{_checked(queue)}/jobs/{urllib.parse.quote(id, '')}"
        return _job(self._call("GET", path, {"wait": _duration(wait)}, wait=wait)[0], queue)

    def peek(self, queue: str) -> Job:
        """Returns the job that is claimed next, without claiming it, or raises NoJob."""
        return _job(self._call("GET", _checked(queue) + "/peek")[0], queue)

    def delete(self, queue: str, id: str) -> None:
        """Ends a job, in whatever state it is, or raises NoJob."""
        said, _ = self._call("DELETE", f"{_checked(queue)}/jobs/{urllib.parse.quote(id, '')}")
        if not said.get("state"):
            raise foreign()

    def counts(self, queue: str) -> Counts:
        """Counts the jobs of a queue."""
        said, _ = self._call("GET", _checked(queue))
        counts = [said.get(name) for name in Counts._fields]
        if not all(type(n) is int for n in counts):
            raise foreign()
        return Counts(*counts)  # type: ignore[arg-type]

    def close(self) -> None:
        """Closes the connections that carry no request. Calls that follow make others."""
        idle, self._idle = self._idle, []
        for c in idle:
            c.close()

    def __enter__(self) -> Queues:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _take(self) -> Connection:
        if self._pid != os.getpid():  # the connections are those of the parent
            self._idle, self._pid = [], os.getpid()
        try:
            return self._idle.pop()
        except IndexError:
            return Connection(self._endpoint)

    def _call(
        self, method: str, path: str, query: dict[str, Any] = {}, body: bytes = b"", kind: str = "", key: str = "", key_ttl: float = 0.0, *,
        wait: float = 0.0, attempts: int = 0, connection: Optional[Connection] = None, timeout: float = 0.0,
    ) -> tuple[dict[str, Any], bool]:
        """Makes attempts until one is answered for good. True with it: one before may have done what was asked."""
        headers = {name: value for name, value in (("Content-Type", kind), ("Idempotency-Key", key)) if value}
        given = {name: value for name, value in query.items() if value or value is not None and name.startswith("attribute.")}
        path = "/" + path + "?" + urllib.parse.urlencode(given)
        maybe, attempt, forgotten = False, 0, float("inf")  # forgotten: when the service may not know the key any more
        while True:
            attempt, sent = attempt + 1, time.monotonic()
            limit = min((timeout or self._timeout) + wait, forgotten - sent)
            c = connection or self._take()
            try:
                answer = c.request(method, path.rstrip("?"), headers, body, limit, MAX_ANSWER)
                if answer.status not in (200, 201):
                    raise answer.error()
                said = parse(answer.body)
                if not isinstance(said, dict):
                    raise foreign()
                return said, maybe
            except SpillwayError as e:
                if maybe and method == "DELETE" and isinstance(e, NoJob):
                    return {"state": "deleted"}, maybe  # most likely by an attempt whose answer was lost
                if not isinstance(e, Temporary) or e.status == 200:
                    raise
                if isinstance(e, Unknown) and not maybe:
                    maybe, forgotten = True, sent + key_ttl / 12 * 11 if key else forgotten
                pause = max(backoff(*self.backoff, attempt), e.retry_after)
                if attempt >= (attempts or self._attempts) or forgotten - time.monotonic() < pause:
                    if not maybe or isinstance(e, Unknown):
                        raise
                    raise Unknown(str(e), status=e.status, retry_after=e.retry_after) from e
            finally:
                if connection is None:
                    self._idle.append(c)
            time.sleep(pause)


def settlement(job: Job, do: str, after: float = 0.0, error: object = None, result: object = None) -> dict[str, Any]:
    """A line of a settle: what became of one delivery. It can be repeated, but for a requeue, which names the deadline.

    It raises Invalid for a result that is not JSON of 4 KiB at most."""
    seconds(**{"after" if do == "nack" else "ttr": after})
    line: dict[str, Any] = {"id": job.id, "attempt": job.attempt, "do": do}
    if after:
        line["ms"] = int(min(max(after, 0.0), MAX_AFTER) * 1000 + 0.999)
    if error is not None:
        line["error"] = str(error).encode("utf-8", "replace")[:MAX_ERROR].decode("utf-8", "ignore")
    if do == "requeue" and job._deadline:
        line["deadline_ms"] = job._deadline
    if result is not None:
        try:
            text = compact(result)
            n = len(text.encode())
        except Exception as e:  # of whatever it is made of
            raise Invalid(f"the result is not JSON: {e}") from e
        if n > MAX_RESULT:
            raise Invalid(f"the result has {n} bytes, {MAX_RESULT} at most")
        line["result"] = json.loads(text)  # the caller's own may change before it is sent
    return line


def _job(form: Any, queue: str = "") -> Job:
    try:
        if not (isinstance(form["id"], str) and form["id"] and type(form.get("attempt", 0)) is int and isinstance(form.get("queue", queue), str)):
            raise foreign()
        return Job(form.get("queue", queue), form["id"], form.get("attempt", 0), form)
    except (TypeError, ValueError, KeyError, AttributeError):
        raise foreign() from None


def _duration(seconds: float) -> str:
    return f"{int(seconds * 1000)}ms" if seconds else ""


def _checked(queue: str) -> str:
    if re.fullmatch(r"(?![._])[A-Za-z0-9._-]{1,255}", queue) is None:
        raise Invalid(f"{queue[:64]!r}: a queue is 1 to 255 letters, digits, ._- and begins with neither . nor _", code="bad_queue")
    return queue
