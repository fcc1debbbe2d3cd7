"""Progress and log lines: only the owner of a valid lease writes them."""

from __future__ import annotations

import pytest

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.query import Query
from mainspring.jobs.records import AttemptReport, LogLine
from mainspring.states import Action
from mainspring.stores.base import Store
from mainspring.testing.contract.hands import Hand, job, lease, put_in, row, running
from mainspring.worker.records import Claim

__all__ = ["TestReports"]


def report(claim: Claim, progress: bytes | None = b"50", *, token: int | None = None, lines: int = 0) -> AttemptReport:
    logs = tuple(LogLine(at, "INFO", f"line {at}") for at in range(lines))
    return AttemptReport(id=claim.id, token=claim.token if token is None else token, progress=progress, logs=logs)


@pytest.mark.asyncio
class TestReports:
    async def test_every_client_sees_progress(self, store: Store, second_store: Store) -> None:
        hand, claim = await running(store)
        assert await store.report(hand.name, [report(claim, b"\x00\xff")]) == [True]
        assert (await row(second_store, claim)).progress == b"\x00\xff"

    async def test_the_last_progress_stays_with_the_ended_job(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, b"100")])
        await hand.succeed(claim)
        assert (await row(store, claim)).progress == b"100"

    async def test_log_lines_stay_in_order(self, store: Store) -> None:
        """Numbered from 1, whatever their times are; also after the end of the job."""
        hand, claim = await running(store)
        lines = [LogLine(5, "INFO", "one"), LogLine(5, "WARNING", "two \x00 🐛"), LogLine(4, "ERROR", "three")]
        for line in lines:
            await store.report(hand.name, [AttemptReport(id=claim.id, token=claim.token, logs=(line,))])
        kept = [LogLine(line.at, line.level, line.text, n) for n, line in enumerate(lines, 1)]
        assert await store.logs(claim.id) == kept
        await hand.succeed(claim)
        assert await store.logs(claim.id) == kept

    async def test_a_report_without_progress_keeps_the_last_progress(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, b"1")])
        await store.report(hand.name, [report(claim, None, lines=1)])
        assert (await row(store, claim)).progress == b"1"

    async def test_the_newest_thousand_lines_are_kept(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, lines=990)])
        more = tuple(LogLine(at, "INFO", f"line {at}") for at in range(990, 1050))
        await store.report(hand.name, [AttemptReport(id=claim.id, token=claim.token, logs=more)])
        kept = await store.logs(claim.id)
        assert [(line.at, line.n) for line in kept] == [(at, at + 1) for at in range(50, 1050)]

    async def test_line_numbers_count_deleted_lines(self, store: Store) -> None:
        """So a reader that continues by number misses no later line."""
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, lines=2500)])
        kept = await store.logs(claim.id)
        assert [(line.at, line.n) for line in kept] == [(at, at + 1) for at in range(1500, 2500)]

    async def test_logs_after_a_number(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, lines=5)])
        assert [line.n for line in await store.logs(claim.id, 3)] == [4, 5]
        assert await store.logs(claim.id, 5) == []
        await store.report(hand.name, [report(claim, lines=1)])
        assert [(line.n, line.text) for line in await store.logs(claim.id, 5)] == [(6, "line 0")]

    async def test_line_numbers_continue_over_attempts_and_epochs(self, store: Store) -> None:
        """A retry by hand deletes the progress and keeps the log."""
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, b"50", lines=2)])
        await hand.kill(claim)
        await store.act(Action.RETRY, Query(ids=(claim.id,)))
        assert (await row(store, claim)).progress is None
        again = await hand.take_one(f"{claim.queue}/any")
        await store.report(hand.name, [report(again, None, lines=1)])
        assert [line.n for line in await store.logs(claim.id)] == [1, 2, 3]

    async def test_another_token_is_refused(self, store: Store) -> None:
        hand, claim = await running(store)
        assert await store.report(hand.name, [report(claim, token=claim.token - 1, lines=1)]) == [False]
        assert (await row(store, claim)).progress is None
        assert await store.logs(claim.id) == []

    async def test_another_worker_is_refused(self, store: Store) -> None:
        _, claim = await running(store)
        thief = await Hand(store).join()
        assert await store.report(thief.name, [report(claim, lines=1)]) == [False]
        assert (await row(store, claim)).progress is None
        assert await store.logs(claim.id) == []

    async def test_a_rescued_attempt_is_refused(self, store: Store) -> None:
        """The earlier owner can change neither progress nor log of the rescued job."""
        old, claim = await running(store)
        await store.rescue(old.name, old.beats, Outcome.LOST)
        new = await Hand(store).join()
        retaken = await new.take_one(f"{claim.queue}/any")
        await store.report(new.name, [report(retaken, b"new")])
        assert await store.report(old.name, [report(claim, b"old", lines=1)]) == [False]
        assert (await row(store, claim)).progress == b"new"
        assert await store.logs(claim.id) == []

    async def test_an_ended_attempt_is_refused(self, store: Store) -> None:
        hand, claim = await running(store)
        await hand.turn(Ack.interrupted(lease(claim)))
        assert await store.report(hand.name, [report(claim)]) == [False]

    async def test_each_report_of_a_call_is_checked_separately(self, store: Store) -> None:
        await put_in(store, job(), job())
        hand = await Hand(store).join()
        first, second = await hand.take(2)
        said = await store.report(hand.name, [report(first, b"1"), report(second, token=1), report(second, b"2")])
        assert said == [True, False, True]
        assert [(await row(store, each)).progress for each in (first, second)] == [b"1", b"2"]

    async def test_delete_deletes_the_logs(self, store: Store) -> None:
        hand, claim = await running(store)
        await store.report(hand.name, [report(claim, lines=3)])
        await hand.succeed(claim)
        await store.act(Action.DELETE, Query(ids=(claim.id,)))
        assert await store.logs(claim.id) == []

    async def test_a_report_is_no_heartbeat(self, store: Store) -> None:
        """Only heartbeats count against a rescue."""
        hand, claim = await running(store)
        seen = hand.beats
        await store.report(hand.name, [report(claim)])
        assert (await store.rescue(hand.name, seen, Outcome.LOST)).taken
