"""The client of a Spillway service: Reporter for events, Queues and Worker for jobs. Standard library only."""

from ._http import (
    Empty, Gone, Invalid, NoJob, NoNamespace, RateLimited, SpillwayError, Temporary, TooLarge, TooManyJobs, TooManyKeys, TooManyQueues,
    Unauthorized, Unavailable, Unknown,
)
from ._queues import Counts, Job, Published, Queues
from ._reporter import Reporter, Stats
from ._worker import Deferred, NotBegun, Permanent, RetryIn, Worker

__all__ = [
    "Counts", "Deferred", "Empty", "Gone", "Invalid", "Job", "NoJob", "NoNamespace", "NotBegun", "Permanent", "Published",
    "Queues", "RateLimited", "Reporter", "RetryIn", "SpillwayError", "Stats", "Temporary", "TooLarge", "TooManyJobs", "TooManyKeys", "TooManyQueues",
    "Unauthorized", "Unavailable", "Unknown", "Worker",
]
