"""JobInfo: what people read of a job, made of what the store knows."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring.codec import ErrorRecord, dumps
from mainspring.common.ids import new_id
from mainspring.jobs.info import build_info, build_log_entry
from mainspring.jobs.manager import Counts
from mainspring.jobs.outcomes import Outcome
from mainspring.jobs.records import AttemptRow, JobBody, JobRow, LogLine
from mainspring.states import Reason, State

SECOND = 1_000_000
START = datetime(2030, 1, 1, tzinfo=UTC)
T0 = int(START.timestamp()) * SECOND


def row(body: JobBody | bytes | None = None, **changes: Any) -> JobRow:
    record = body if isinstance(body, bytes) else msgspec.json.encode(body or JobBody())
    facts: dict[str, Any] = {
        "id": new_id().bytes, "state": State.READY, "task": "shop.send", "queue": "email", "lane": "email",
        "priority": 0, "attempt": 0, "epoch": 1, "crashes": 0, "crash_limit": 3, "early": False, "token": 0,
        "worker": None, "seq": 1, "enqueued": T0, "record": record,
    }  # fmt: skip
    return JobRow(**{**facts, **changes})


def attempt(number: int, start: int, end: int, outcome: Outcome, *, epoch: int = 1, token: int = 0) -> AttemptRow:
    error = dumps(ErrorRecord("ValueError", f"number {number}\nand more", "traceback"))
    return AttemptRow(
        token=token or number, epoch=epoch, attempt=number, worker="w1", started=T0 + start * SECOND,
        ended=T0 + end * SECOND, ran=700, outcome=outcome, error=error,
    )  # fmt: skip


def test_info_shows_what_the_producer_wrote() -> None:
    parent = new_id()
    info = build_info(
        row(
            JobBody(
                args=msgspec.Raw(b'{"to":"a@b.c","n":1}'), tags=("vip",), meta=msgspec.Raw(b'{"shop":7}'),
                key="order-1", parent=parent.hex, trace="ab" * 16, code="v7",
            )
        )
    )  # fmt: skip
    assert info.args == {"to": "a@b.c", "n": 1}
    assert (info.tags, info.meta, info.key) == (("vip",), {"shop": 7}, "order-1")
    assert (info.parent, info.trace, info.code) == (parent, "ab" * 16, "v7")


def test_without_a_trace_the_id_is_the_trace() -> None:
    info = build_info(row())
    assert UUID(info.trace) == info.id
    assert (info.args, info.tags, info.meta, info.key, info.parent, info.code) == ({}, (), {}, None, None, None)


@pytest.mark.parametrize("where", [b'{"token":"s3cret","n":1}', b'{"n":1,"**":{"token":"s3cret","m":2}}'])
def test_hidden_arguments_are_not_shown(where: bytes) -> None:
    info = build_info(row(JobBody(args=msgspec.Raw(where), hide=("token",))))
    assert "s3cret" not in repr(info)
    assert "***" in repr(info.args)
    assert info.args["n"] == 1


def test_options_are_the_options_of_the_job() -> None:
    assert build_info(row()).options == {"ack": "late", "crashes": 3}
    given = build_info(row(JobBody(options={"retries": 2, "timeout": 90 * SECOND}), crash_limit=1, early=True))
    assert given.options == {"ack": "early", "crashes": 1, "retries": 2, "timeout": "1m30s"}
    assert build_info(row(JobBody(options={"timeout": None}))).options["timeout"] is None


@pytest.mark.parametrize("record", [b"\xff\xfe", b"[]", b'{"args": 7}', b'{"retries": "many"}'])
def test_an_unreadable_record_still_shows_the_other_fields(record: bytes) -> None:
    info = build_info(row(record))
    assert (info.task, info.state, info.args) == ("shop.send", State.READY, {})


def test_wait_time_and_run_time() -> None:
    waiting = build_info(row())
    assert (waiting.wait, waiting.run) == (None, None)
    running = build_info(row(state=State.RUNNING, started=T0 + 2 * SECOND))
    assert (running.wait, running.run) == (timedelta(seconds=2), None)
    ended = build_info(row(state=State.SUCCEEDED, started=T0 + 2 * SECOND, finished=T0 + 5 * SECOND, ran=700))
    assert (ended.wait, ended.run) == (timedelta(seconds=2), timedelta(microseconds=700))
    lost = build_info(row(state=State.DEAD, started=T0 + 2 * SECOND, finished=T0 + 5 * SECOND))
    assert (lost.wait, lost.run) == (timedelta(seconds=2), None)
    never = build_info(row(state=State.CANCELLED, finished=T0 + 5 * SECOND))
    assert (never.wait, never.run) == (None, None)


class TestTimeline:
    def test_timeline_of_a_job_that_failed_and_then_succeeded(self) -> None:
        """A plain success has no row of its own. The job row has it."""
        info = build_info(
            row(
                state=State.SUCCEEDED, attempt=2, token=9, worker="w2", started=T0 + 8 * SECOND,
                finished=T0 + 9 * SECOND,
            ),
            [attempt(1, 1, 3, Outcome.FAILED)],
        )  # fmt: skip
        assert [(moment.at - START, moment.what) for moment in info.timeline] == [
            (timedelta(0), "enqueued"),
            (timedelta(seconds=1), "started"),
            (timedelta(seconds=3), "failed"),
            (timedelta(seconds=8), "started"),
            (timedelta(seconds=9), "succeeded"),
        ]
        details = [moment.detail for moment in info.timeline]
        assert details[1:4] == ["attempt 1 on worker w1", "ValueError: number 1", "attempt 2 on worker w2"]
        assert info.attempts[0].run == timedelta(microseconds=700)

    def test_timeline_of_a_dead_job_in_its_second_epoch(self) -> None:
        info = build_info(
            row(
                state=State.DEAD, reason=Reason.RETRIES_EXHAUSTED, attempt=1, epoch=2, token=20, worker="w1",
                started=T0 + 8 * SECOND, finished=T0 + 9 * SECOND,
            ),
            [attempt(1, 1, 3, Outcome.FAILED), attempt(1, 8, 9, Outcome.FAILED, epoch=2, token=20)],
        )  # fmt: skip
        assert [moment.what for moment in info.timeline] == [
            "enqueued", "started", "failed", "started", "failed", "dead",
        ]  # fmt: skip
        assert info.timeline[3].detail == "attempt 1 of epoch 2 on worker w1"
        assert info.timeline[-1].detail == "retries_exhausted"

    def test_timeline_of_a_job_that_waits_for_its_next_attempt(self) -> None:
        info = build_info(
            row(state=State.RETRYING, attempt=1, token=1, worker="w1", started=T0 + SECOND, due=T0 + 9 * SECOND),
            [attempt(1, 1, 3, Outcome.TIMED_OUT)],
        )
        assert [moment.what for moment in info.timeline] == ["enqueued", "started", "timed_out", "due"]

    def test_timeline_of_a_job_cancelled_by_a_user(self) -> None:
        cancelled = row(state=State.CANCELLED, reason=Reason.BY_USER, note="not needed", finished=T0 + SECOND)
        assert build_info(cancelled).timeline[-1].detail == "by_user: not needed"


def test_a_log_line_has_its_number_and_time() -> None:
    entry = build_log_entry(LogLine(T0, "info", "hello", 7))
    assert (entry.n, entry.at, entry.level, entry.text) == (7, START, "info", "hello")


def test_counts_add_up() -> None:
    counts = Counts({**dict.fromkeys(State, 0), State.READY: 2, State.RUNNING: 1, State.DEAD: 4})
    assert (counts.total, counts.live) == (7, 3)
    assert counts["ready"] == counts[State.READY] == 2
    with pytest.raises(ValueError, match="redy"):
        counts["redy"]
    assert msgspec.json.decode(msgspec.json.encode(counts))["dead"] == 4
