"""The context of one call of a bulk task. Attributes of a single job are in ``ctx.jobs[i]``."""

from __future__ import annotations

import logging
from typing import Any, cast

from mainspring.errors import NotOpen
from mainspring.worker.run import context_reports
from mainspring.worker.run.attempt import RunningAttempt
from mainspring.worker.run.bulk.attempt import BulkAttempt
from mainspring.worker.run.context import AsyncContext, Context, context_of

_JOB_ATTRIBUTES = frozenset(
    {
        "job_id",
        "attempt",
        "token",
        "queue",
        "tags",
        "meta",
        "trace_id",
        "progress",
        "track",
        "log",
        "send",
        "spawn",
        "cost",
    }
)


class BulkContext(Context):
    """The run of a bulk ``def`` handler."""

    __slots__ = ("_jobs",)

    def __init__(self, attempt: RunningAttempt, task: str) -> None:
        super().__init__(attempt, task)
        self._jobs = tuple(context_of(item) for item in cast("BulkAttempt", attempt).items)

    def __getattribute__(self, name: str) -> Any:
        if name in _JOB_ATTRIBUTES:
            why = f"ctx.{name} belongs to one job, but a call of a bulk task runs several jobs"
            raise NotOpen(why, hint=f"Use ctx.jobs[i].{name} for the job of items[i].")
        return super().__getattribute__(name)

    @property
    def jobs(self) -> tuple[Any, ...]:
        """The context of each item's job, in the order of the items."""
        return self._jobs

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records have the task and the number of jobs of the call."""
        if self._logger is None:
            assert self._attempt is not None
            self._logger = context_reports.JobLogger(self._attempt.log_fields)
        return self._logger

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {len(self._jobs)} x {self._task}>"


class AsyncBulkContext(BulkContext, AsyncContext):
    """The run of a bulk ``async def`` handler."""

    __slots__ = ()
