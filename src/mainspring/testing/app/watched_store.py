"""The store as the worker of a drain sees it, and the account of what happened there."""

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
    """What happened in a drain. Attempts are counted, so a job may count more than once."""

    ran: int = 0
    """Attempts that were run; each is one of the next five."""
    succeeded: int = 0
    retrying: int = 0
    """Failed, to be tried again."""
    snoozed: int = 0
    cancelled: int = 0
    dead: int = 0
    expired: int = 0
    """Jobs that were not started in time."""
    pruned: int = 0
    """Ended jobs that were deleted because their retention is over."""


class Watched(Door):
    """The store as the worker of a drain sees it: claims are counted out, what happens is counted."""

    def __init__(self, door: Door, limit: int) -> None:
        super().__init__(door.inner, deadline=door.deadline)
        self.left = limit
        self.turned = asyncio.Event()
        self.happened: Counter[str] = Counter()
        self.fruitless = False
        """The last turn asked for work and got none."""
        self.moves = 0
        """Claims and acks that have come through."""
        self._known: set[tuple[bytes, int]] = set()

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
        """The drain has done it, at a moment of its own: not when the worker's pruner happens to look."""
        return 0

    def _within(self, turn: Turn) -> Iterator[Want]:
        """The wants, cut to what may still be run."""
        left = self.left
        for want in turn.wants:
            n = min(left, want.n)
            if n > 0:
                left -= n
                yield msgspec.structs.replace(want, n=n, oldest=min(n, want.oldest))

    def _took(self, claim: Claim) -> None:
        if (claim.id, claim.token) not in self._known:
            self._known.add((claim.id, claim.token))
            self.moves += 1
            self.left -= 1

    def _note(self, ack: Ack) -> None:
        if ack.outcome is Outcome.INTERRUPTED:
            self.left += 1  # given back: it was not run
            return
        self.happened["ran"] += 1
        self.happened["snoozed" if ack.outcome is Outcome.SNOOZED else ack.to.value] += 1
