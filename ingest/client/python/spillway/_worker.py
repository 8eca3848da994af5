"""Gives jobs to a handler."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any, Callable, Optional, Sequence

from ._http import Connection, Gone, Invalid, NoNamespace, SpillwayError, Temporary, TooLarge, Unauthorized, backoff, guarded, seconds, warner
from ._queues import Job, Queues, settlement

MAX_CLAIM = 1000
LAST_SETTLE = 2.0  # how long a request that settles may take once stop_timeout is over


class Permanent(Exception):
    """Raised by a handler: no other delivery mends it, and the job is buried."""


class RetryIn(Exception):
    """Raised by a handler: the job comes again after so many seconds."""

    def __init__(self, error: object, after: float) -> None:
        seconds(after=after)
        super().__init__(error)
        self.after = after


class NotBegun(Exception):
    """Raised by a handler that has done nothing: the job goes back as if it had not been claimed."""


class Deferred(Exception):
    """Raised by a handler: the work goes on elsewhere, and whoever does it settles the job within ttr seconds."""

    def __init__(self, ttr: float) -> None:
        seconds(ttr=ttr)
        super().__init__(f"deferred for {ttr} s")
        self.ttr = ttr


class Worker:
    """Claims jobs of queues, the most wanted first, and gives each to handle, in concurrency threads.

    A handler that returns acks its job, and what it returns, other than None, is the job's result: what is not JSON of 4 KiB
    at most is told to on_error, and left out. What it raises decides: Permanent buries, RetryIn nacks with its time, NotBegun
    requeues, Deferred defers, anything else nacks with a random time up to min(backoff_max, backoff_base·2^(attempt-1)).
    Jobs are leased for ttr (0: as a rule for the queue says, or 60), prolonged each ttr/3 while the handler runs. job.ended is set when the lease is lost, or stop_timeout after stop().
    While the service cannot be reached, or rejects the token, the worker goes on; give_up_after bounds the latter.
    on_error is told of handlers and settlements that failed, on_request_error of claims: by default the logger "spillway" warns,
    of each kind of failure once a minute at most. Times are in seconds.
    """

    def __init__(
        self, queues: Queues, names: Sequence[str], handle: Callable[[Job], object], *, concurrency: int = 1, ttr: float = 0.0,
        wait: float = 30.0, backoff_base: float = 1.0, backoff_max: float = 600.0, stop_timeout: float = 30.0,
        give_up_after: Optional[float] = None, on_error: Optional[Callable[[Job, BaseException], object]] = None,
        on_request_error: Optional[Callable[[SpillwayError], object]] = None,
    ) -> None:
        seconds(ttr=ttr, wait=wait, backoff_base=backoff_base, backoff_max=backoff_max, stop_timeout=stop_timeout,
                give_up_after=give_up_after or 0)
        if concurrency < 1 or wait < 0.001 or min(ttr, backoff_base, stop_timeout) < 0 or backoff_max < backoff_base:
            raise ValueError("concurrency is below 1, a time is negative or none, or backoff_max is below backoff_base")
        self._queues, self._names, self._handle, self._concurrency = queues, list(names), handle, concurrency
        self._ttr, self._wait, self._backoff = ttr, wait, (backoff_base, backoff_max)
        self._stop_timeout, self._give_up_after = stop_timeout, give_up_after
        self._on_error, self._on_request_error = guarded(on_error), guarded(on_request_error or warner(queues._endpoint))
        self._wake: queue.SimpleQueue[None] = queue.SimpleQueue()  # its put is safe in a signal handler
        self._stopping = threading.Event()
        self._cut = threading.Event()  # stop_timeout is over
        self._over = threading.Event()  # every handler has ended
        self._jobs: queue.SimpleQueue[Optional[tuple[Job, float]]] = queue.SimpleQueue()
        self._endings: queue.SimpleQueue[Optional[tuple[Job, dict[str, Any]]]] = queue.SimpleQueue()
        self._claiming, self._settling, self._beating = (Connection(queues._endpoint) for _ in range(3))
        self._lock = threading.Lock()
        self._freed, self._idle = threading.Condition(self._lock), threading.Condition(self._lock)
        self._busy = self._running = 0  # jobs that are not settled; handlers that run
        self._leases: dict[Job, list[float]] = {}  # of those: when to touch it, its end, failures in a row
        self._error: Optional[BaseException] = None
        self._touching = threading.Lock()  # held during a touch

    def stop(self) -> None:
        """Makes run() end, from any thread or a signal handler."""
        self._wake.put(None)

    def run(self) -> None:
        """Works until stop(); then claims no more, waits for handlers, and returns. Once only.

        It raises what the service rejects for good. A KeyboardInterrupt is a stop(), and raised at the end.
        """
        runs = (self._claims, self._settler, self._beats)
        claims, settler, beats = threads = [threading.Thread(target=run, name="spillway-worker", daemon=True) for run in runs]
        for t in threads:
            t.start()
        interrupt = None
        try:
            self._wake.get()
        except KeyboardInterrupt as e:
            interrupt = e
        self._stopping.set()
        self._claiming.abort()
        with self._lock:
            self._freed.notify_all()
        claims.join()
        self._claiming.close()
        patience = time.monotonic() + self._stop_timeout
        with self._lock:
            if not self._idle.wait_for(lambda: not self._running, self._stop_timeout):
                for job in self._leases:
                    self._end(job, "stopped")
                self._cut.set()
            self._idle.wait_for(lambda: not self._running)
        self._over.set()
        self._beating.abort()
        for _ in range(self._concurrency):
            self._jobs.put(None)
        self._endings.put(None)
        settler.join(max(patience - time.monotonic(), 0.0))
        self._cut.set()
        if settler.is_alive():
            self._settling.abort()
        settler.join()
        beats.join()
        if interrupt:
            raise interrupt
        if self._error:
            raise self._error

    def _end(self, job: Job, cause: str) -> None:
        if not job.cause:
            job.cause = cause
            job.ended.set()

    def _claims(self) -> None:
        try:
            self._claim()
        except BaseException as e:
            self._error = e
        self._wake.put(None)

    def _claim(self) -> None:
        """Claims jobs as long as handlers may run, one request at a time, and raises what ends that."""
        failures, barred, threads = 0, 0.0, 0
        while True:
            with self._lock:
                self._freed.wait_for(lambda: self._stopping.is_set() or self._busy < self._concurrency)
                free = min(self._concurrency - self._busy, MAX_CLAIM)
            if self._stopping.is_set():
                return
            try:
                jobs = self._queues.claim(self._names, count=free, ttr=self._ttr, wait=self._wait, _attempts=1,
                                          _connection=self._claiming)
            except SpillwayError as e:
                if self._stopping.is_set():
                    return
                self._on_request_error(e)
                failures += 1
                if isinstance(e, (Unauthorized, NoNamespace)):
                    barred = barred or time.monotonic()
                else:
                    barred = 0.0
                limit = self._give_up_after
                if not barred and not isinstance(e, Temporary) or barred and limit is not None and time.monotonic() - barred >= limit:
                    raise
                self._stopping.wait(max(backoff(*self._queues.backoff, failures), e.retry_after, 0.001))
                continue
            failures, barred, leased = 0, 0.0, time.monotonic()
            with self._lock:
                self._busy += len(jobs)
                self._running += len(jobs)
                while threads < self._busy:
                    threads += 1
                    threading.Thread(target=self._handlers, name="spillway-handler", daemon=True).start()
            for job in jobs:
                self._jobs.put((job, leased))

    def _handlers(self) -> None:
        while True:
            item = self._jobs.get()
            if item is None:
                return
            job, leased = item
            result, error = None, None  # type: Any, Optional[BaseException]
            if self._stopping.is_set():  # it came with the last answer
                error = NotBegun()
            else:
                with self._lock:
                    self._leases[job] = [leased + job._ttr / 3, leased + job._ttr, 0]
                try:
                    result = self._handle(job)
                except BaseException as e:
                    error = e
                with self._lock:
                    self._leases.pop(job, None)
            if isinstance(error, NotBegun):
                self._touching.acquire()  # the next delivery has the same attempt: a touch of this one ends first
                self._touching.release()
            ending = self._ending(job, error, result)
            with self._lock:
                self._running -= 1
                if ending is None:
                    self._busy -= 1
                    self._freed.notify()
                else:
                    self._endings.put((job, ending))
                if not self._running:
                    self._idle.notify_all()

    def _ending(self, job: Job, error: Optional[BaseException], result: object) -> Optional[dict[str, Any]]:
        """The settlement of a job; None: there is nothing to settle."""
        if error is not None and not isinstance(error, (NotBegun, Deferred)):
            self._on_error(job, error)
        if error is None:
            try:
                return settlement(job, "ack", result=result)  # which counts after the lease, too
            except Invalid as e:
                self._on_error(job, e)
                return settlement(job, "ack")
        if job.cause == "lease_lost":
            return None
        if isinstance(error, NotBegun):
            return settlement(job, "requeue")
        if isinstance(error, Deferred):
            return settlement(job, "defer", error.ttr)
        try:
            text = str(error) or type(error).__name__
        except BaseException:  # as the handler's own
            text = type(error).__name__
        if isinstance(error, Permanent):
            return settlement(job, "bury", 0.0, text)
        if isinstance(error, RetryIn):
            return settlement(job, "nack", error.after, text)
        if job.cause:  # a stop, which is not the job's fault
            return settlement(job, "requeue")
        return settlement(job, "nack", backoff(*self._backoff, job.attempt), text)

    def _settler(self) -> None:
        """Tells the service what became of jobs: what ends during one request goes together in the next."""
        connection, waiting, last, failures = self._settling, [], False, 0  # type: ignore[var-annotated]
        while waiting or not last:
            if not waiting:
                self._take(waiting, self._endings.get())
                last = not waiting
            while not last and not self._endings.empty():
                last = not self._take(waiting, self._endings.get())
            if self._cut.is_set():  # the other may be aborted
                connection.close()
                connection = Connection(self._queues._endpoint)
            again = []
            for name in {job.queue for job, _ in waiting}:
                again += self._settle(connection, name, [w for w in waiting if w[0].queue == name])
            with self._lock:
                self._busy -= len(waiting) - len(again)
                self._freed.notify()
            waiting = again
            failures = failures + 1 if again else 0
            if again:
                self._cut.wait(backoff(*self._queues.backoff, failures) + 0.001)
        connection.close()

    @staticmethod
    def _take(waiting: list[Any], item: Any) -> bool:
        if item is not None:
            waiting.append(item)
        return item is not None

    def _settle(self, connection: Connection, name: str, batch: list[Any]) -> list[Any]:
        """Sends endings of one queue, and returns those to be sent again."""
        cut, errors = self._cut.is_set(), [None] * len(batch)  # type: list[Any]
        try:
            errors = self._queues._settle_all(name, [line for _, line in batch], 1, connection, LAST_SETTLE if cut else 0)
        except TooLarge as e:
            half = len(batch) // 2
            if half:
                return self._settle(connection, name, batch[:half]) + self._settle(connection, name, batch[half:])
            errors = [e]
        except SpillwayError as e:
            errors = [e] * len(batch)
        again = []
        for item, e in zip(batch, errors):
            if e is None or isinstance(e, Gone):
                continue
            self._on_error(item[0], e)
            if not cut and isinstance(e, (Temporary, Unauthorized, NoNamespace)):
                again.append(item)
        return again

    def _beats(self) -> None:
        """Prolongs the leases of handlers that run."""
        connection = self._beating
        while not self._over.is_set():
            now = time.monotonic()
            with self._lock:
                due = [(job, lease) for job, lease in self._leases.items() if lease[0] <= now and not job.cause]
            for job, lease in due:
                if now >= lease[1]:
                    self._end(job, "lease_lost")
            due = [(job, lease) for job, lease in due if not job.cause]
            for name in {job.queue for job, _ in due}:
                with self._touching:
                    self._touch(connection, name, [d for d in due if d[0].queue == name and d[0] in self._leases])
            with self._lock:
                next_due = min((lease[0] for job, lease in self._leases.items() if not job.cause), default=float("inf"))
            self._over.wait(min(max(next_due - time.monotonic(), 0.001), (self._ttr or 1.0) / 3))  # a rule's is a second at least
        connection.close()

    def _touch(self, connection: Connection, name: str, due: list[Any]) -> None:
        if not due:
            return
        sent = time.monotonic()
        limit = min(min(lease[1] - sent, job._ttr / 3) for job, lease in due)  # one that hangs must not take the time of all
        for job, _ in due:
            job._deadline = 0  # its answer may be lost, or late
        try:
            lines = [settlement(job, "touch", job._ttr) for job, _ in due]
            errors = self._queues._settle_all(name, lines, 1, connection, max(limit, 0.001))
        except SpillwayError as e:
            errors = [e] * len(due)
        for (job, lease), e in zip(due, errors):
            if e is None:
                lease[:] = [sent + job._ttr / 3, sent + job._ttr, 0]
            elif isinstance(e, Gone):
                self._end(job, "lease_lost")
            else:
                lease[2] += 1
                lease[0] = min(time.monotonic() + max(backoff(*self._queues.backoff, int(lease[2])), 0.001), lease[1])
