"""What a handler tells of its run: checked, cut to size and buffered for the reporter. Nothing here waits.

Without an attempt (a plain call) things are checked and go no further.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

from mainspring.codec import clean_text, dumps, loads, wire
from mainspring.common.redact import redact, redact_in
from mainspring.errors import InvalidOption
from mainspring.jobs.records import LogLine
from mainspring.worker.run.stream import Stream

if TYPE_CHECKING:
    from mainspring.limits.declare import LimitSet
    from mainspring.worker.run.attempt import RunningAttempt

LOG_LINES = 1_000
"""Most log lines of one job; the newest are kept."""
LEVELS = {"debug": 10, "info": 20, "warning": 30, "error": 40, "critical": 50}
_TEXT_LIMIT = 4_000
_PROGRESS_LIMIT = 16_000
_FIELDS = "mainspring_fields"


class JobLogger(logging.LoggerAdapter[logging.Logger]):
    """Adds the job's id, task, queue, attempt, worker and trace to each record."""

    def __init__(self, fields: Mapping[str, Any]) -> None:
        super().__init__(_jobs, {_FIELDS: fields})

    def process(self, msg: Any, kwargs: MutableMapping[str, Any]) -> tuple[Any, MutableMapping[str, Any]]:
        kwargs["extra"] = {**(kwargs.get("extra") or {}), **(self.extra or {})}
        return msg, kwargs


def _spread(record: logging.LogRecord) -> bool:
    """Make attributes of the fields. Here and not as ``extra``, which refuses what a record factory has set already."""
    record.__dict__.update(record.__dict__.pop(_FIELDS, {}))
    return True


_jobs = logging.getLogger("mainspring.jobs")
_jobs.addFilter(_spread)


def cost(attempt: RunningAttempt | None, task: str, units: int, limiter: LimitSet | None) -> None:
    """Note what the attempt really cost."""
    if type(units) is not int or units < 0:
        raise InvalidOption("cost", units, "must be a whole number from 0", subject=f"task {task!r}")
    if attempt is None:
        return
    rates = [limit.name for limit in attempt.spec.limits if limit.kind in ("rate", "smooth")]
    if limiter is not None:
        rates = [name for name in rates if name in {each.limit(limiter.owner).name for each in limiter.limits}]
    if not rates:
        why, hint = "is of no use: the task has no such rate", "It needs limit=Rate(...), or a limiter with a rate."
        raise InvalidOption("cost", units, why, subject=f"task {task!r}", hint=hint)
    attempt.spent = {**(attempt.spent or {}), **dict.fromkeys(rates, units)}


def progress(
    attempt: RunningAttempt | None, task: str, done: float, total: float | None, note: str, meta: Mapping[str, Any]
) -> None:
    """The last one counts."""
    for name, number in (("done", done), ("total", total)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, (int, float))):
            raise InvalidOption("progress", number, f"{name} must be a number", subject=task)
    fields: dict[str, Any] = {"done": done}
    if total is not None:
        fields["total"] = total
    if note:
        fields["note"] = clean_text(redact(str(note)), 500)
    if meta:
        fields["meta"] = redact_in(loads(_encoded("progress", meta, task)))
    data = _encoded("progress", fields, task)
    if len(data) > _PROGRESS_LIMIT:
        raise InvalidOption("progress", fields, f"takes {len(data):,} bytes, the limit is {_PROGRESS_LIMIT:,}")
    if attempt is not None:
        attempt.progress = data
        attempt.home.told(attempt)


def log(
    attempt: RunningAttempt | None, logger: logging.LoggerAdapter[logging.Logger], text: str, level: str, fields: Any
) -> None:
    """A line for the logger and for the job."""
    if level not in LEVELS:
        raise InvalidOption("level", level, f"must be one of {', '.join(LEVELS)}", subject="ctx.log")
    line = str(text) + "".join(f" {name}={value!r}" for name, value in fields.items())
    line = clean_text(redact(line), _TEXT_LIMIT)
    logger.log(LEVELS[level], "%s", line)
    if attempt is None:
        return
    if attempt.logs is None:
        attempt.logs = deque(maxlen=LOG_LINES)
    attempt.logs.append(LogLine(attempt.home.store_now(), level, line))
    attempt.home.told(attempt)


def send(attempt: RunningAttempt | None, task: str, item: Any) -> None:
    """The next item of the stream."""
    data = _encoded("send", item, task)
    if attempt is None:
        return
    if attempt.stream is None:
        attempt.stream = Stream()
    if attempt.stream.add(attempt.claim.id, data):
        attempt.home.told(attempt, soon=True)


def _encoded(what: str, value: Any, task: str) -> bytes:
    try:
        data = dumps(value)
    except Exception as error:  # noqa: BLE001 - encoders run user code; it is translated
        raise InvalidOption(what, value, f"cannot be stored: {error}", subject=task) from None
    if b"null" in data and (path := wire.find(value, what, wire.is_not_finite)) is not None:
        raise InvalidOption(what, value, f"{path} is not a finite number; JSON has none such", subject=task)
    if b"\\u0000" in data and (path := wire.find(value, what, wire.has_nul)) is not None:
        raise InvalidOption(what, value, f"{path} holds a NUL character, which not every store can keep", subject=task)
    return data
