"""What a handler reports about its run: progress, log lines, stream items and its real cost.

Reports are checked, cut to size and buffered on the attempt; ``progress.py`` sends them. Nothing here waits. Without an
attempt (in a plain call of the function) a report is checked and then dropped.
"""

from __future__ import annotations

import itertools
import logging
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar
from uuid import UUID

from mainspring.codec import clean_text, dumps, loads, wire
from mainspring.common.ids import id_text
from mainspring.common.redact import redact, redact_in
from mainspring.errors import InvalidOption, StreamFull
from mainspring.jobs.records import LogLine

if TYPE_CHECKING:
    from mainspring.limits.declare import LimitSet
    from mainspring.worker.run.attempt import RunningAttempt
    from mainspring.worker.run.context import Context

A = TypeVar("A")

LOG_LINES = 1_000
"""Most log lines of one job. The newest are kept."""
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
ITEMS_LIMIT = 10_000
"""Most items of one stream."""
BYTES_LIMIT = 8_000_000
"""Most bytes of one stream."""
_TEXT_LIMIT = 4_000
_NOTE_LIMIT = 500
_PROGRESS_LIMIT = 16_000
_FIELDS = "mainspring_fields"


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's id, task, queue, attempt, worker and trace to each record."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(_logger, {_FIELDS: fields})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def _set_fields(record: logging.LogRecord) -> bool:
    """Make the fields attributes of the record. Not by ``extra``: logging refuses names that a record factory set."""
    record.__dict__.update(record.__dict__.pop(_FIELDS, {}))
    return True


_logger = logging.getLogger("mainspring.jobs")
_logger.addFilter(_set_fields)


class Stream:
    """The stream items of one attempt that the store does not have yet.

    The body writes items, from any of its threads; ``progress.py`` takes them out. Each item has a place: the first
    item of an attempt has place 1. The next attempt overwrites the places of the attempt before it, so a reader that
    reads each place once sees a repeated item only once.
    """

    __slots__ = ("_bytes", "_places", "waiting")

    def __init__(self) -> None:
        self._places = itertools.count(1)
        self._bytes = 0
        self.waiting: deque[tuple[int, bytes]] = deque()
        """Items that the store does not have yet, with their places."""

    def add(self, job: bytes, item: bytes) -> bool:
        """Add an item at the next place. True if no other item waits. Raises ``StreamFull`` beyond the limits."""
        if self._bytes + len(item) > BYTES_LIMIT:
            raise StreamFull(UUID(bytes=job), f"{BYTES_LIMIT // 1_000_000} MB")
        place = next(self._places)
        if place > ITEMS_LIMIT:
            raise StreamFull(UUID(bytes=job), f"{ITEMS_LIMIT:,} items")
        self._bytes += len(item)
        first = not self.waiting
        self.waiting.append((place, item))
        return first

    def take(self, size: int) -> tuple[tuple[int, bytes], ...]:
        """Take out the next items: about ``size`` bytes together, and at least one item if one waits."""
        taken: list[tuple[int, bytes]] = []
        while self.waiting and size > 0:
            taken.append(self.waiting.popleft())
            size -= len(taken[-1][1])
        return tuple(taken)

    def put_back(self, items: tuple[tuple[int, bytes], ...]) -> None:
        """The items could not be stored: the next :meth:`take` returns them again."""
        self.waiting.extendleft(reversed(items))


class Track(Generic[A]):
    """``ctx.track(items)``: an iterator that reports its own progress. Works in ``for`` and in ``async for``."""

    __slots__ = ("_async_items", "_context", "_items", "_note", "_plain_items", "_total")

    def __init__(self, context: Context, items: Iterable[A] | AsyncIterable[A], note: str, total: int | None) -> None:
        self._context = context
        self._items = items
        self._note = note
        size = getattr(items, "__len__", None)
        self._total = total if total is not None or size is None else int(size())
        self._plain_items = self._iterate()
        self._async_items = self._iterate_async()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> A:
        return next(self._plain_items)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> A:
        return await anext(self._async_items)

    def _iterate(self) -> Iterator[A]:
        if not isinstance(self._items, Iterable):
            raise TypeError(f"track: {type(self._items).__name__} needs `async for`")
        done = 0
        for item in self._items:
            self._step(done)
            yield item
            done += 1
        self._context.progress(done, self._total or done, self._note)

    async def _iterate_async(self) -> AsyncIterator[A]:
        if not isinstance(self._items, AsyncIterable):
            for item in self._plain_items:
                yield item
            return
        done = 0
        async for item in self._items:
            self._step(done)
            yield item
            done += 1
        self._context.progress(done, self._total or done, self._note)

    def _step(self, done: int) -> None:
        self._context.check()
        self._context.progress(done, self._total, self._note)


def report_cost(attempt: RunningAttempt | None, task: str, units: int, limiter: LimitSet | None) -> None:
    """Note what the attempt really cost."""
    if type(units) is not int or units < 0:
        raise InvalidOption("cost", units, "must be a whole number from 0", subject=f"task {task!r}")
    if attempt is None:
        return
    rates = [limit.name for limit in attempt.spec.limits if limit.kind in ("rate", "smooth")]
    if limiter is not None:
        rates = [name for name in rates if name in {each.limit(limiter.owner).name for each in limiter.limits}]
    if not rates:
        why, hint = (
            "has no effect: the task has no such rate",
            "The task needs limit=Rate(...), or a limiter with a rate.",
        )
        raise InvalidOption("cost", units, why, subject=f"task {task!r}", hint=hint)
    if _is_too_late(attempt, "cost"):
        return
    attempt.actual_cost = {**(attempt.actual_cost or {}), **dict.fromkeys(rates, units)}


def report_progress(
    attempt: RunningAttempt | None, task: str, done: float, total: float | None, note: str, meta: Mapping[str, Any]
) -> None:
    """Note the progress. A later report replaces an earlier one."""
    for name, number in (("done", done), ("total", total)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
            raise InvalidOption("progress", number, f"{name} must be a number", subject=task)
    fields: dict[str, Any] = {"done": done}
    if total is not None:
        fields["total"] = total
    if note:
        fields["note"] = clean_text(redact(str(note), attempt), _NOTE_LIMIT)
    if meta:
        fields["meta"] = redact_in(loads(_encode("progress", meta, task)), attempt)
    data = _encode("progress", fields, task)
    if len(data) > _PROGRESS_LIMIT:
        raise InvalidOption("progress", fields, f"takes {len(data):,} bytes, the limit is {_PROGRESS_LIMIT:,}")
    if attempt is not None and not _is_too_late(attempt, "progress"):
        attempt.progress = data
        attempt.environment.reports.add(attempt)


def report_line(
    attempt: RunningAttempt | None, logger: logging.LoggerAdapter[logging.Logger], text: str, level: str, fields: Any
) -> None:
    """Write a line to the logger and to the log of the job."""
    if level not in LEVELS:
        raise InvalidOption("level", level, f"must be one of {', '.join(LEVELS)}", subject="ctx.log")
    line = str(text) + "".join(f" {name}={value!r}" for name, value in fields.items())
    line = clean_text(redact(line, attempt), _TEXT_LIMIT)
    logger.log(LEVELS[level], "%s", line)
    if attempt is None or _is_too_late(attempt, "log"):
        return
    if attempt.logs is None:
        attempt.logs = deque(maxlen=LOG_LINES)
    # A job may have been enqueued after the turn that claimed it began, and the time of the turn is that of its start.
    at = max(attempt.environment.store_now(), attempt.claim.enqueued)
    attempt.logs.append(LogLine(at, level, line))
    attempt.environment.reports.add(attempt)


def report_item(attempt: RunningAttempt | None, task: str, item: Any) -> None:
    """Add an item to the stream of the job."""
    data = _encode("send", item, task)
    if attempt is None or _is_too_late(attempt, "send"):
        return
    if attempt.stream is None:
        attempt.stream = Stream()
    if attempt.stream.add(attempt.claim.id, data):
        attempt.environment.reports.add(attempt, soon=True)


def _is_too_late(attempt: RunningAttempt, method: str) -> bool:
    """Whether the body has ended, so that the store takes no report of it any more. Warns once for each attempt."""
    if not attempt.finished:
        return False
    if not attempt.late_report:
        attempt.late_report = True
        what = {"cost": "the cost", "progress": "the progress", "log": "the log line", "send": "the item"}[method]
        JobLogger(attempt.log_fields).warning(
            "ctx.%s(): the body of task %r (job %s) has ended, and %s is not stored. Wait for the threads and asyncio "
            "tasks that use the context before the function returns.",
            method, attempt.claim.task, id_text(attempt.claim.id), what,
        )  # fmt: skip
    return True


def _encode(what: str, value: Any, task: str) -> bytes:
    try:
        data = dumps(value)
    except Exception as error:  # noqa: BLE001 - encoders run user code, which may raise anything
        raise InvalidOption(what, value, _why_unstored(what, value, error), subject=task) from None
    if b"null" in data and (path := wire.find(value, what, wire.is_not_finite)) is not None:
        raise InvalidOption(what, value, f"{path} is not a finite number, which JSON cannot represent", subject=task)
    if b"\\u0000" in data and (path := wire.find(value, what, wire.has_nul)) is not None:
        raise InvalidOption(
            what, value, f"{path} contains a NUL character, which some stores cannot hold", subject=task
        )
    return data


def _why_unstored(what: str, value: Any, error: Exception) -> str:
    """Why a value cannot be stored. The encoder's error of an unknown type has no text, so the type is named here."""
    if str(error):
        return f"cannot be stored: {error}"
    try:
        path, part, _ = wire.unwritable(value, what) or (what, value, error)
    except Exception:  # noqa: BLE001 - the search runs user code too
        path, part = what, value
    return f"cannot be stored: {path} has the type {type(part).__name__}, and only JSON values are stored"
