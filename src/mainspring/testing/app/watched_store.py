"""The store of a drain's worker, which counts what happens."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator

import msgspec

from mainspring.jobs.outcomes import Ack, Outcome
from mainspring.jobs.records import PromoteResult, Retention
from mainspring.stores.door import Door
from mainspring.worker.records import Claim, Turn, TurnResult, Want


class Drained(msgspec.Struct, frozen=True, kw_only=True):
    """The counts of a drain. Attempts are counted, so one job may count several times."""

    ran: int = 0
    """All attempts; each is also counted in one of the next five fields."""
    succeeded: int = 0
    retrying: int = 0
    """Failed attempts that will be retried."""
    snoozed: int = 0
    cancelled: int = 0
    dead: int = 0
    expired: int = 0
    """Jobs that expired before they started."""
    pruned: int = 0
    """Ended jobs that were deleted after their retention."""


class Watched(Door):
    """The store of a drain's worker: limits the claims and counts the acks. A job that is claimed ``most_of_one`` times
    is endless."""

    def __init__(self, door: Door, limit: int, most_of_one: int | None = None) -> None:
        super().__init__(door.inner, deadline=door.deadline)
        self.left = limit
        self.turned = asyncio.Event()
        self.happened: Counter[str] = Counter()
        self.fruitless = False
        """Whether the last turn asked for jobs and got none."""
        self.moves = 0
        """The number of claims and acks."""
        self._most_of_one = most_of_one
        self.claimed = 0
        """The number of claims."""
        self._known: set[tuple[bytes, int]] = set()
        self._runs: Counter[tuple[bytes, str]] = Counter()
        self._most: tuple[tuple[bytes, str], int] = (b"", ""), 0

    async def turn(self, turn: Turn) -> TurnResult:
        reply = await super().turn(msgspec.structs.replace(turn, wants=tuple(self._within(turn))))
        for claim in reply.claims:
            self._took(claim)
        refused = {*reply.stale, *reply.unstorable, *reply.already}
        for ack in turn.acks:
            self.moves += 1
            if ack.lease not in refused:
                self._note(ack)
        self.fruitless = bool(turn.wants) and not reply.claims
        self.turned.set()
        return reply

    async def promote(self, limit: int = 1000) -> PromoteResult:
        done = await super().promote(limit)
        self.happened["expired"] += done.expired
        return done

    async def prune(self, retention: Retention, limit: int = 1000) -> int:  # noqa: ARG002 - the contract's signature
        """Do nothing: the drain prunes at a defined time, not when the worker's pruner runs."""
        return 0

    @property
    def has_endless_job(self) -> bool:
        """Whether a job was claimed so often that it will not end."""
        return self._most_of_one is not None and self._most[1] >= self._most_of_one

    def most_runs(self) -> tuple[tuple[bytes, str], int]:
        """The job that was claimed most, its task, and how often."""
        return self._most

    def most_run_task(self) -> str:
        """The task whose jobs were claimed most."""
        tasks: Counter[str] = Counter()
        for (_, task), runs in self._runs.items():
            tasks[task] += runs
        return tasks.most_common(1)[0][0] if tasks else ""

    def _within(self, turn: Turn) -> Iterator[Want]:
        """The wants, reduced to the attempts that remain."""
        left = self.left
        for want in turn.wants:
            n = min(left, want.n)
            if n > 0:
                left -= n
                yield msgspec.structs.replace(want, n=n)

    def _took(self, claim: Claim) -> None:
        if (claim.id, claim.token) not in self._known:
            self._known.add((claim.id, claim.token))
            self.moves += 1
            self.left -= 1
            self.claimed += 1
            key = (claim.id, claim.task)
            self._runs[key] += 1
            if self._runs[key] > self._most[1]:
                self._most = key, self._runs[key]

    def _note(self, ack: Ack) -> None:
        if ack.outcome is Outcome.INTERRUPTED:
            self.left += 1  # handed back: it did not run
            return
        self.happened["ran"] += 1
        self.happened["snoozed" if ack.outcome is Outcome.SNOOZED else ack.to.value] += 1
