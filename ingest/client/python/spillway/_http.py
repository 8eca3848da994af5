"""Requests over kept connections, and what their answers mean."""

from __future__ import annotations

import email.utils
import http.client
import json
import logging
import numbers
import random
import re
import select
import socket
import time
import urllib.parse
from contextlib import contextmanager
from typing import Any, Callable, Iterator, NamedTuple, Optional


class SpillwayError(Exception):
    """The service says no, or does not answer: status of HTTP (0: no answer), its code, the seconds that it asks to wait."""

    def __init__(self, message: str, *, status: int = 0, code: str = "", retry_after: float = 0.0) -> None:
        super().__init__(f"{code}: {message}" if code else message)
        self.status, self.code, self.retry_after = status, code, retry_after


class NoJob(SpillwayError): """There is no such job, or the queue has none."""
class Gone(SpillwayError): """The job is not leased to this attempt any more."""
class Empty(SpillwayError): """A payload is empty, or there is none."""
class TooLarge(SpillwayError): """The request is larger than the service takes."""
class TooManyJobs(SpillwayError): """The namespace has max_jobs jobs."""
class TooManyKeys(SpillwayError): """The namespace remembers max_keys idempotency keys."""
class TooManyQueues(SpillwayError): """The namespace has max_queues queues."""
class NoNamespace(SpillwayError): """There is no such namespace, or none of kind queue."""
class Unauthorized(SpillwayError): """The token is missing, or not one of this namespace."""
class Invalid(SpillwayError): """The service rejects the request, and would again."""
class Temporary(SpillwayError): """Another attempt may help."""
class RateLimited(Temporary): """The token has used its rate."""
class Unavailable(Temporary): """The service cannot serve the request now; nothing was done."""
class Unknown(Temporary): """The service may have done what was asked."""


CODES: dict[str, type[SpillwayError]] = {
    "no_such_job": NoJob, "too_many_jobs": TooManyJobs, "too_many_keys": TooManyKeys, "too_many_queues": TooManyQueues,
    "no_such_namespace": NoNamespace, "unauthorized": Unauthorized, "forbidden": Unauthorized, "cross_origin": Unauthorized,
    "rate_limited": RateLimited, "empty_body": Empty, "empty_batch": Empty, "body_too_large": TooLarge,
    "entry_too_large": TooLarge, "too_many_entries": TooLarge, "hung_up": Unknown, "internal": Unknown,
    "request_timeout": Unavailable, "store_unavailable": Unavailable, "store_full": Unavailable, "overloaded": Unavailable,
    "shutting_down": Unavailable, "not_ready": Unavailable,
}


class Answer(NamedTuple):
    status: int
    headers: Any
    body: bytes

    def error(self) -> SpillwayError:
        """The error that it is."""
        said = parse(self.body)
        said = said if isinstance(said, dict) else {}
        code = said["error"] if isinstance(said.get("error"), str) else ""
        kind = CODES.get(code) or (RateLimited if self.status == 429 else Invalid if self.status < 500 else Unknown)
        message = str(said.get("message", ""))[:200] if code else f"the service answered {self.status}"
        after = retry_after(self.headers.get("Retry-After", ""))
        return (Unknown if said.get("outcome") == "unknown" else kind)(message, status=self.status, code=code, retry_after=after)


def buffer() -> NoNamespace:
    """The error of a publish that a buffer answers."""
    return NoNamespace("the namespace is a buffer, and took the payload as an entry; jobs are for one of kind queue", status=200)


def foreign() -> Unknown:
    """The error of a 200 without what Spillway says with it."""
    return Unknown("an answer that is none of Spillway's", status=200)


def parse(body: bytes) -> Any:
    """JSON, or None."""
    try:
        return json.loads(body.decode())
    except (ValueError, RecursionError):
        return None


def retry_after(header: str) -> float:
    """Seconds, of a number or a date, an hour at most; 0 for anything else."""
    try:
        if header.strip().isdecimal():
            return min(float(header), 3600.0)
        return min(max(email.utils.parsedate_to_datetime(header).timestamp() - time.time(), 0.0), 3600.0)
    except (TypeError, ValueError, IndexError, OverflowError):
        return 0.0


def backoff(base: float, most: float, n: int) -> float:
    """A random time up to the nth bound, full jitter."""
    return random.random() * min(most, base * 2.0 ** min(n - 1, 60))


def seconds(**times: Any) -> None:
    """Raises what says which of the times is none: a number of seconds."""
    for name, value in times.items():
        if not isinstance(value, numbers.Real) or isinstance(value, bool):
            raise TypeError(f"{name} is {value!r}: want a number of seconds, such as {name}=1.5")
        if not -1e12 < value < 1e12:  # nor NaN
            raise ValueError(f"{name} is {value!r}: want a number of seconds")


def warner(endpoint: Endpoint) -> Callable[[Exception], None]:
    """The hook of a program that gives none: it logs a failure of each kind, at most once a minute."""
    last: dict[type, float] = {}

    def warn(error: Exception) -> None:
        now = time.monotonic()
        if now - last.get(type(error), float("-inf")) >= 60:
            last[type(error)] = now
            logging.getLogger("spillway").warning("a request to %s failed: %s: %s", endpoint.url, type(error).__name__, error)
    return warn


def guarded(callback: Optional[Callable[..., object]]) -> Callable[..., None]:
    """A caller's callback, whose exceptions are its own: the first is logged."""
    told = False

    def call(*args: Any) -> None:
        nonlocal told
        try:
            if callback:
                callback(*args)
        except BaseException:  # also SystemExit, which would end the thread
            if not told:
                told = True
                logging.getLogger("spillway").exception("a callback failed, which is told once")
    return call


def encode(value: Any) -> bytes:
    """Bytes as they are; anything else as JSON."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    return compact(value).encode()


def compact(value: Any) -> str:
    """JSON without spaces, or a TypeError, ValueError or RecursionError."""
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def valid_name(name: str, longest: int) -> bool:
    """The rule for names of namespaces and partitions."""
    return len(name) <= longest and re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]*", name) is not None


class Endpoint:
    """Where requests go, and what all of them carry."""

    def __init__(self, url: str, namespace: str, token: str) -> None:
        try:
            at = urllib.parse.urlsplit(url)
            self.host, self.port, self.tls = at.hostname or "", at.port, at.scheme == "https"
        except ValueError:
            raise ValueError("the URL is malformed: want http://host:port or https://host:port") from None
        if at.scheme not in ("http", "https") or not self.host or at.username or at.password or at.query or at.fragment:
            raise ValueError("the URL: want http://host:port or https://host:port, without user and query")
        if not valid_name(namespace, 64):
            raise ValueError(f"namespace {namespace!r}: want a letter or digit, then letters, digits, ._- up to 64")
        if any(not "!" <= c <= "~" for c in token):
            raise ValueError("the token holds a character that no token has")
        self.path = at.path.rstrip("/") + "/v1/" + namespace
        self.url = f"{at.scheme}://{at.netloc}{self.path}"
        self.headers = {"Authorization": "Bearer " + token} if token else {}


class Connection:
    """A kept connection, for one request at a time."""

    def __init__(self, endpoint: Endpoint) -> None:
        kind = http.client.HTTPSConnection if endpoint.tls else http.client.HTTPConnection
        self._http, self._endpoint, self._aborted = kind(endpoint.host, endpoint.port), endpoint, False
        self._sock: Any = None  # of the last request, whose answer may have it for itself

    def _ask(self, method: str, path: str, headers: dict[str, str], body: bytes, deadline: float) -> http.client.HTTPResponse:
        c = self._http
        if c.sock is not None and readable(c.sock):  # closed while it was idle
            c.close()
        try:
            if c.sock is None:
                c.timeout = min(max(deadline - time.monotonic(), 0.001), 10.0)
                c.connect()
        except OSError as e:
            c.close()
            raise Unavailable(f"no connection: {e}") from e
        with self._answering():
            if self._aborted:
                raise ConnectionAbortedError("the call was given up")
            self._sock = c.sock
            self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
            c.request(method, self._endpoint.path + path, body, {**self._endpoint.headers, **headers})
            return c.getresponse()

    @contextmanager
    def _answering(self) -> Iterator[None]:
        try:
            yield
        except (OSError, http.client.HTTPException, ValueError) as e:
            self._http.close()
            raise Unknown(f"no answer: {e}") from e

    def request(self, method: str, path: str, headers: dict[str, str], body: bytes, timeout: float, limit: int) -> Answer:
        """Sends one request, and reads limit bytes of its answer. Without one it raises Unavailable or Unknown."""
        deadline = time.monotonic() + timeout
        response, answer, part = self._ask(method, path, headers, body, deadline), b"", b"-"
        with self._answering():
            while part and len(answer) < limit:
                if not response.isclosed():  # with its connection, after the last byte
                    self._sock.settimeout(max(deadline - time.monotonic(), 0.001))
                part = response.read1(1 << 20)
                answer += part
            if response.length:
                raise http.client.IncompleteRead(answer, response.length)
            response.close()
        return Answer(response.status, response.headers, answer)

    def abort(self) -> None:
        """Ends the request of another thread, and those that follow."""
        self._aborted = True
        for sock in (self._http.sock, self._sock):
            try:
                if sock is not None:
                    sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue

    def close(self) -> None:
        """Closes it; a request opens it again."""
        self._http.close()


def readable(sock: socket.socket) -> bool:
    """Whether the other end has closed, or said something."""
    if not hasattr(select, "poll"):
        return bool(select.select([sock], [], [], 0)[0])
    poll = select.poll()
    poll.register(sock, select.POLLIN)
    return bool(poll.poll(0))
