"""What runs in this context: the body of a job, or the import of the modules of a worker process.

It is here, below the worker, because handles of jobs need to know where they are used.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

current: ContextVar[Any] = ContextVar("mainspring_attempt")
"""The attempt whose body runs: a :class:`mainspring.worker.run.attempt.RunningAttempt`."""

importing: ContextVar[bool] = ContextVar("mainspring_importing", default=False)
"""Whether a worker process imports the modules with its tasks. It runs no job before that has ended."""
