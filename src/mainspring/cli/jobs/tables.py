"""Jobs as JSON documents, tables and text."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mainspring.cli.document import document
from mainspring.cli.output import FactList, Table
from mainspring.cli.text import block, line, short, span, to_json, to_second, when
from mainspring.codec import first_line

if TYPE_CHECKING:
    from collections.abc import Iterable

    from mainspring.codec import ErrorRecord
    from mainspring.jobs.info import AttemptInfo, JobInfo, LogEntry

JOB_COLUMNS = ("id", "state", "task", "queue", "try", "enqueued", "run", "about")


def job_document(info: JobInfo, **more: Any) -> dict[str, Any]:
    """A job as listings show it: without its attempts, options and token."""
    return document(info, without=("token", "attempts", "options"), wait=info.wait, **more)


def whole_document(info: JobInfo, **more: Any) -> dict[str, Any]:
    """A job with its attempts and its timeline."""
    attempts = [document(each, without=("token",)) for each in info.attempts]
    timeline = [document(each) for each in info.timeline]
    return job_document(info, options=info.options, attempts=attempts, timeline=timeline, **more)


def job_table(jobs: Iterable[JobInfo], *, empty: str = "no jobs") -> Table:
    now = datetime.now(UTC)
    rows = [
        (each.id, each.state, each.task, each.queue, each.attempt, when(each.enqueued, now), span(each.run),
         _about(each, now))
        for each in jobs
    ]  # fmt: skip
    return Table(JOB_COLUMNS, rows, empty=empty)


def _about(info: JobInfo, now: datetime) -> str:
    """The most useful fact about a job in its state."""
    if info.cancelling:
        return "being cancelled"
    if info.due is not None and not info.final:
        return f"due {when(info.due, now)}"
    if info.progress is not None and not info.final:
        return progress(info.progress)
    if info.final and info.error is not None:
        return short(error_line(info.error))
    if info.warning is not None:
        return short(info.warning)
    return short(": ".join(part for part in (info.reason, info.note) if part))


def progress(report: Mapping[str, Any]) -> str:
    """``40 of 100 (40%) resizing``."""
    done, total = report.get("done"), report.get("total")
    text = f"{done:g}" if isinstance(done, int | float) else str(done)
    if isinstance(total, int | float) and total and isinstance(done, int | float):
        text += f" of {total:g} ({done / total:.0%})"
    return short(f"{text} {report.get('note', '')}".strip())


def error_line(error: ErrorRecord) -> str:
    first = first_line(error)
    return f"{error.type}: {first}" if first else error.type


def job_blocks(info: JobInfo) -> list[Table | FactList | str]:
    """All blocks of ``jobs show``."""
    blocks: list[Table | FactList | str] = [_facts(info)]
    if info.args:
        blocks.append(FactList([(name, compact(value)) for name, value in info.args.items()], title="arguments"))
    moments = [(when(each.at), each.what, each.detail) for each in info.timeline]
    blocks.append(Table(("at", "what", "detail"), moments, title="timeline"))
    blocks += [_attempt_block(each) for each in info.attempts if each.error is not None]
    if info.error is not None and not any(each.error == info.error for each in info.attempts):
        blocks.append(f"error\n{_error_block(info.error)}")
    return blocks


def _facts(info: JobInfo) -> FactList:
    ended = ": ".join(part for part in (info.reason, info.note) if part)
    optional = {
        "cancelling": "yes, the task is asked to stop" if info.cancelling else None,
        "warning": info.warning,
        "key": info.key,
        "tags": ", ".join(info.tags),
        "meta": compact(info.meta) if info.meta else None,
        "parent": info.parent,
        "schedule": info.schedule,
        "occurrence": info.occurrence and when(info.occurrence),
        "worker": info.worker,
        "due": info.due and when(info.due),
        "expires": info.expires and when(info.expires),
        "flow": info.flow,
        "progress": info.progress and progress(info.progress),
        "code": info.code,
    }
    carried = ", ".join(f"{name} {value}" for name, value in info.options.items())
    return FactList([
        ("id", info.id),
        ("task", info.task),
        ("queue", info.queue),
        ("state", f"{info.state} ({ended})" if ended else info.state),
        ("priority", info.priority),
        ("attempt", f"{info.attempt} of epoch {info.epoch}, {info.crashes} crashes"),
        ("waited", span(info.wait)),
        ("ran", span(info.run)),
        *((name, value) for name, value in optional.items() if value),
        ("options", carried),
        ("trace", info.trace),
    ])  # fmt: skip


def _attempt_block(attempt: AttemptInfo) -> str:
    assert attempt.error is not None
    head = f"attempt {attempt.number} of epoch {attempt.epoch}: {attempt.outcome} on worker {attempt.worker}"
    return f"{head}\n{_error_block(attempt.error)}"


def _error_block(error: ErrorRecord) -> str:
    lines = [error.traceback.rstrip() or error_line(error)]
    lines += [f"caused by {cause}" for cause in error.causes if not error.traceback]
    lines += [f"note: {note}" for note in error.notes if note not in error.traceback]
    if error.code:
        lines.append(f"code version {error.code}")
    return "\n".join("  " + each for each in block("\n".join(lines)).splitlines())


def as_json(value: Any) -> Any:
    """A result as JSON values, with secrets hidden."""
    import msgspec

    return msgspec.json.decode(msgspec.json.encode(value, enc_hook=_hidden))


def _hidden(value: Any) -> Any:
    from mainspring.codec import wire
    from mainspring.common.secret import Secret

    return str(value) if isinstance(value, Secret) else wire.to_json(value)


def compact(value: Any) -> str:
    return line(to_json(value, compact=True))


def log_line(entry: LogEntry) -> str:
    return f"{to_second(entry.at)} {entry.level:<7} {line(entry.text)}"
