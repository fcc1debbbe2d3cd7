"""What a handler knows of its own run: ``Context`` for ``def``, ``AsyncContext`` for ``async def``.

Nothing here waits: progress and log lines are buffered and sent by the reporter.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable, Iterator
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Self, TypeVar
from uuid import UUID

from mainspring.clock import boottime, to_datetime
from mainspring.codec import clean_text, dumps
from mainspring.errors import Fenced, HardTimeout, InvalidOption, JobCancelled, NotBuilt, NotOpen, SoftTimeout
from mainspring.ids import new_id
from mainspring.records import LogLine
from mainspring.worker.attempt import NEVER, Attempt, Ending
from mainspring.worker.track import Track
from mainspring.worker.verdict import BodyEnded

if TYPE_CHECKING:
    from mainspring.spec import TaskSpec

A = TypeVar("A")
F = TypeVar("F", bound=Callable[..., Any])

LOG_LINES = 1_000
"""Most log lines of one job; the newest are kept."""
_TEXT_LIMIT = 4_000
_PROGRESS_LIMIT = 16_000
_LATER = frozenset(
    {"step", "sleep", "wait_event", "spawn", "transaction", "checkpoint", "resume", "send", "flow"}
)  # fmt: skip

current: ContextVar[Attempt] = ContextVar("mainspring_attempt")
"""The attempt whose body runs here."""

_jobs_log = logging.getLogger("mainspring.jobs")


class _JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's id, task and attempt to each record and to its text."""

    def process(self, msg: Any, kwargs: Any) -> tuple[Any, Any]:
        extra = self.extra or {}
        kwargs["extra"] = {**extra, **(kwargs.get("extra") or {})}
        return f"[{extra['task']} {extra['job_id']}#{extra['attempt']}] {msg}", kwargs


class Context:
    """The run of a ``def`` handler; see :class:`AsyncContext` for ``async def``.

    Attributes do no I/O. ``Context.current()`` gives the context of the running job anywhere below
    its handler; :meth:`bind` carries it into threads that the handler starts itself.
    """

    __slots__ = ("_attempt", "_job_id", "_logger", "_task")

    def __init__(self, attempt: Attempt | None, task: str) -> None:
        self._attempt = attempt
        self._task = task
        self._job_id: UUID | None = None
        self._logger: _JobLogger | None = None

    @classmethod
    def local(cls, task: str) -> Self:
        """The context of a plain call: nothing is stored, nothing ends it."""
        return cls(None, task)

    @classmethod
    def current(cls) -> Self:
        """The context of the job that runs here; ``NotOpen`` outside of one."""
        attempt = current.get(None)
        if attempt is None:
            raise NotOpen(
                f"{cls.__name__}.current(): no job runs here",
                hint="In a thread of your own use ctx.bind(fn); a plain call has no current context.",
            )
        found = context_of(attempt)
        if not isinstance(found, cls):
            raise NotOpen(
                f"{cls.__name__}.current(): the running task {attempt.claim.task!r} has the other colour",
                hint=f"Use {type(found).__name__}.current() there.",
            )
        return found

    # ---- what it is --------------------------------------------------------------------------

    @property
    def job_id(self) -> UUID:
        if self._job_id is None:
            self._job_id = new_id() if self._attempt is None else UUID(bytes=self._attempt.claim.id)
        return self._job_id

    @property
    def attempt(self) -> int:
        """1 for the first attempt."""
        return 1 if self._attempt is None else self._attempt.claim.attempt

    @property
    def token(self) -> int:
        """The fencing token: grows with every run of this job; hand it to systems that compare it."""
        return 0 if self._attempt is None else self._attempt.claim.token

    @property
    def queue(self) -> str:
        return "" if self._attempt is None else self._attempt.claim.queue

    @property
    def deadline(self) -> datetime | None:
        """When the hard time limit is, by this machine's clock; None without a limit."""
        if self._attempt is None or self._attempt.deadline == NEVER:
            return None
        left = self._attempt.deadline - boottime()
        return to_datetime(int(datetime.now(UTC).timestamp() * 1e6 + left * 1e6))

    @property
    def state(self) -> Any:
        """What the app's lifespan gave: its value; with several, a namespace by function name."""
        return None if self._attempt is None else self._attempt.home.state

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose records carry the job's id, task and attempt."""
        if self._logger is None:
            extra = {"job_id": str(self.job_id), "task": self._task, "attempt": self.attempt}
            self._logger = _JobLogger(_jobs_log, extra)
        return self._logger

    # ---- whether to go on --------------------------------------------------------------------

    @property
    def cancelled(self) -> bool:
        """Somebody cancelled this job."""
        return self._attempt is not None and self._attempt.ending is Ending.CANCEL

    def check(self) -> None:
        """Raise ``JobCancelled`` or ``SoftTimeout`` if this run should end: for loops in threads."""
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.ending:
            raise ending_error(attempt)
        if attempt.soft_at <= boottime():
            attempt.soft_at, attempt.soft_due = NEVER, True
            raise SoftTimeout(attempt.spec.soft_timeout / 1e6)

    # ---- news --------------------------------------------------------------------------------

    def progress(self, done: float, total: float | None = None, note: str = "", **meta: Any) -> None:
        """How far the work is; seen by every process within about a second. The last one counts."""
        fields: dict[str, Any] = {"done": done}
        if total is not None:
            fields["total"] = total
        if note:
            fields["note"] = clean_text(str(note), 500)
        if meta:
            fields["meta"] = meta
        try:
            data = dumps(fields)
        except Exception as error:  # noqa: BLE001 - encoders run user code; it is translated
            raise InvalidOption("progress", fields, f"cannot be stored: {error}", subject=self._task) from None
        if len(data) > _PROGRESS_LIMIT:
            raise InvalidOption("progress", fields, f"takes {len(data):,} bytes, the limit is {_PROGRESS_LIMIT:,}")
        attempt = self._attempt
        if attempt is not None:
            attempt.progress = data
            attempt.home.told(attempt)

    def track(self, items: Iterable[A], note: str = "", total: int | None = None) -> Iterator[A]:
        """Go over ``items`` and report progress by itself; checks for the end at each."""
        return Track(self, items, note, total)

    def log(self, text: str, **fields: Any) -> None:
        """Keep a line with the job (the newest 1,000) and send it to :attr:`logger`."""
        line = str(text) + "".join(f" {name}={value!r}" for name, value in fields.items())
        line = clean_text(line, _TEXT_LIMIT)
        self.logger.info("%s", line)
        attempt = self._attempt
        if attempt is None:
            return
        if attempt.logs is None:
            attempt.logs = deque(maxlen=LOG_LINES)
        attempt.logs.append(LogLine(attempt.home.store_now(), "info", line))
        attempt.home.told(attempt)

    # ---- carried -----------------------------------------------------------------------------

    def bind(self, fn: F) -> F:
        """``fn``, such that :meth:`current` works inside it in whatever thread it runs."""
        from contextvars import copy_context
        from functools import wraps
        from inspect import iscoroutinefunction

        here = copy_context()

        if iscoroutinefunction(fn):

            @wraps(fn)
            async def bound_async(*args: Any, **kwargs: Any) -> Any:
                if self._attempt is not None:
                    current.set(self._attempt)
                return await fn(*args, **kwargs)

            return bound_async  # type: ignore[return-value]  # the wrapper has fn's signature

        @wraps(fn)
        def bound(*args: Any, **kwargs: Any) -> Any:
            return here.copy().run(fn, *args, **kwargs)

        return bound  # type: ignore[return-value]  # the wrapper has fn's signature

    def __getattr__(self, name: str) -> Any:
        if name in _LATER:
            raise NotBuilt(type(self).__name__, name)
        raise AttributeError(f"{type(self).__name__} has no attribute {name!r}")

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._task} {self.job_id}>"


class AsyncContext(Context):
    """The run of an ``async def`` handler. The same names; ``track`` also takes ``async for``."""

    __slots__ = ()

    def track(self, items: Iterable[A] | AsyncIterable[A], note: str = "", total: int | None = None) -> Track[A]:
        """Go over ``items`` by ``for`` or ``async for`` and report progress by itself."""
        return Track(self, items, note, total)


def context_of(attempt: Attempt) -> Context:
    """The context of an attempt, made once."""
    if attempt.context is None:
        spec: TaskSpec = attempt.spec
        made = AsyncContext if spec.kind == "async" else Context
        attempt.context = made(attempt, attempt.claim.task)
    found: Context = attempt.context
    return found


def ending_error(attempt: Attempt) -> BaseException:
    """What a body is told when it must end."""
    match attempt.ending:
        case Ending.CANCEL:
            return JobCancelled(UUID(bytes=attempt.claim.id), attempt.reason)
        case Ending.HARD:
            return HardTimeout(attempt.timeout / 1e6)
        case Ending.FENCE | Ending.GONE:
            return Fenced("this worker can no longer prove that it owns the job")
        case _:
            return BodyEnded("the worker stops")
