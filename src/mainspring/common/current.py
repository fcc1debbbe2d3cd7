"""The attempt whose body runs in this context: a :class:`mainspring.worker.run.attempt.RunningAttempt`.

It is here, below the worker, because handles of jobs need to know whether they are used inside a job.
"""

from __future__ import annotations

from contextvars import ContextVar
from typing import Any

current: ContextVar[Any] = ContextVar("mainspring_attempt")
