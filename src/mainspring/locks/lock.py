"""Lock: a named, renewed, fenced lease for any code; one holder at a time in the whole fleet, or N of a semaphore."""

from __future__ import annotations

import asyncio
import functools
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast, get_args

from mainspring.client import blocking
from mainspring.common.callables import is_async
from mainspring.common.guardable import check_guardable
from mainspring.common.handles import Handle
from mainspring.errors import InvalidOption, LockBusy, LockLost, StoreError, UseError
from mainspring.locks.entries import Entries, Inside, Skipped
from mainspring.locks.hold import Hold, LockHolder, Scope
from mainspring.locks.names import LockName, checked_ttl, checked_wait

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration

F = TypeVar("F", bound=Callable[..., Any])
OnBusy = Literal["raise", "skip"]

_FIRST, _MOST = 0.05, 1.0
"""Seconds between the first tries of one that waits, and between later ones."""


class Try(NamedTuple):
    """One who wants the lock."""

    hold: Hold
    patience: float
    own: bool
    """Whether whoever asks has it already, so that to wait is to wait for oneself."""


class Lock(Handle):
    """``with``, ``async with``, decorator, or ``acquire`` and ``release``. Renewed from the background while its
    process lives; after a crash it is free within its ttl.

    Each use of one object holds the lock for itself: two threads that share it wait for each other like two
    processes. What the object says of itself (``token``, ``lost``, ``extend``, ``release``) is of the holding of the
    thread or task that asks, or if that has none, of the one that was taken last.
    """

    INSTEAD = "Make it again where it is needed: app.lock(name)."

    def __init__(self, app: Mainspring, spot: LockName, ttl: Duration, wait: Duration | None, on_busy: OnBusy) -> None:
        self.name = spot.name
        self._app = app
        self._spot = spot
        self._ttl = checked_ttl(ttl, str(spot))
        self._wait = checked_wait(wait, str(spot))
        if on_busy not in get_args(OnBusy):
            hint = 'on_busy="skip" does not run what it guards; wait="10s" waits before that.'
            raise InvalidOption("on_busy", on_busy, "must be 'raise' or 'skip'", subject=str(spot), hint=hint)
        self._skips = on_busy == "skip"
        self._entries = Entries()
        self._declared = spot.kind == "lock"

    def told_to(self, known: dict[str, int]) -> Self:
        """Itself; refused if another of its name is known with another size."""
        if known.setdefault(self.name, self._spot.size) != self._spot.size:
            why, hint = f"is that of a semaphore of {known[self.name]}", "Declare it once, or choose another name."
            raise InvalidOption("name", self.name, why, subject=repr(self), hint=hint)
        return self

    # ---- use ----------------------------------------------------------------------------------

    def acquire(self, wait: Duration | None = None) -> bool:
        """Take it: True. Busy after ``wait`` (None: as declared): ``LockBusy``, or with ``on_busy="skip"`` False."""
        return self._keep(blocking.run("lock.acquire", self._won(self._try(wait))))

    async def aacquire(self, wait: Duration | None = None) -> bool:
        return self._keep(await self._won(self._try(wait)))

    def release(self) -> None:
        """Give it back; ``LockLost`` if it was lost before. Whoever holds it then is left alone."""
        blocking.run("lock.release", self._release(self._held()))

    async def arelease(self) -> None:
        await self._release(self._held())

    def extend(self, by: Duration) -> None:
        """Keep it for at least ``by`` from now, also without a renewal; ``LockLost`` if it was lost."""
        blocking.run("lock.extend", self._held().hold.extend(checked_ttl(by, str(self._spot), "by")))

    async def aextend(self, by: Duration) -> None:
        await self._held().hold.extend(checked_ttl(by, str(self._spot), "by"))

    def check(self) -> None:
        """``LockLost`` if it was lost: for loops. Asks nobody."""
        self._held().hold.check()

    def __call__(self, fn: F) -> F:
        """Guard a function: each call takes the lock. One that skips returns None."""
        check_guardable(fn, "lock", str(self._spot), "of a task decorate the function below @app.task.")
        return cast("F", self._around_async(fn) if is_async(fn) else self._around(fn))

    def __enter__(self) -> Self:
        self._begin(blocking.run(f"with {self!r}", self._won(self._try())))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        entry = self._left(error)
        if entry is not None:
            _tell(blocking.run(f"with {self!r}", self._end(entry.hold)), error)

    async def __aenter__(self) -> Self:
        self._begin(await self._won(self._try()), Scope())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        entry = self._left(error)
        if entry is not None:
            ours = entry.scope is not None and entry.scope.leave(error)
            _tell(await self._end(entry.hold), error, ours=ours)

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def token(self) -> int:
        """The fencing number, also when it was given back or lost: larger than that of every holder before."""
        return self._last().hold.token

    @property
    def lost(self) -> bool:
        """Whether it was lost while it was held here, until it is taken again. Asks nobody."""
        entry = self._entries.current() or self._entries.last
        return isinstance(entry, Inside) and (entry.hold.was_lost if entry.over else entry.hold.lost)

    def __bool__(self) -> bool:
        """Whether it is held here: what a ``with`` that may skip asks."""
        entry = self._entries.current()
        if isinstance(entry, Skipped):
            entry.asked = True
        return isinstance(entry, Inside) and not entry.hold.lost

    def is_locked(self) -> bool:
        """Whether all of it is held, by whomever."""
        return blocking.run("lock.is_locked", self.ais_locked())

    async def ais_locked(self) -> bool:
        rows = await (await self._app.client.store()).buckets([self._spot.bucket])
        return any(row.used >= row.size for row in rows)

    def remaining(self) -> timedelta:
        """How long it is held if nobody renews it; of a full semaphore, the first place. Nothing if it is free."""
        return blocking.run("lock.remaining", self.aremaining())

    async def aremaining(self) -> timedelta:
        if not await self.ais_locked():
            return timedelta(0)
        rows = await (await self._app.client.store()).holders(self._spot.bucket)
        return timedelta(microseconds=min((row.left for row in rows), default=0))

    def __repr__(self) -> str:
        return f"<{self._spot.kind.capitalize()} {self.name}>"

    # ---- private ------------------------------------------------------------------------------

    def _try(self, wait: Duration | None = None) -> Try:
        """Made where the caller is: it says who that is."""
        patience = self._wait if wait is None else checked_wait(wait, str(self._spot))
        return Try(Hold(self._app.client, self._spot, self._ttl), patience, self._entries.is_own())

    async def _won(self, trying: Try) -> Hold | None:
        """The lock, held; None if it is busy and may be skipped."""
        if not self._declared:
            await (await self._app.client.store()).declare_limits([self._spot.limit])
            self._declared = True
        began, pauses = time.monotonic(), jittered()
        while not (await trying.hold.ask()).ok:
            waited = time.monotonic() - began
            if waited >= trying.patience or self._is_in_its_own_way(trying):
                if not self._skips:
                    raise await self._busy(trying, waited if trying.patience else 0.0)
                return None
            await asyncio.sleep(min(next(pauses), trying.patience - waited))
        return trying.hold

    def _is_in_its_own_way(self, trying: Try) -> bool:
        return trying.own and self._spot.kind == "lock"

    async def _busy(self, trying: Try, waited: float) -> LockBusy:
        if self._is_in_its_own_way(trying):
            hint = "This very object holds it already, and no lock is taken twice: leave the outer `with` first."
            return LockBusy(str(self._spot), "the same thread or task", hint=hint)
        holder = ""
        with suppress(StoreError):
            for row in await (await self._app.client.store()).holders(self._spot.bucket, 1):
                found = LockHolder.read(row.info)
                holder = f"{found}{', which is this process' if found.is_here else ''}"
        return LockBusy(str(self._spot), holder, waited)

    def _keep(self, hold: Hold | None) -> bool:
        if hold is None:
            return False
        hold.keep()
        self._entries.add(hold)
        return True

    def _begin(self, hold: Hold | None, scope: Scope | None = None) -> None:
        """A block begins, with the lock or skipped."""
        if hold is None:
            self._entries.skip()
            return
        hold.on_lost = None if scope is None else scope.strike
        hold.keep()
        self._entries.add(hold, scope, block=True)

    def _left(self, error: BaseException | None) -> Inside | None:
        """A block ends: what it entered, unless it was skipped."""
        entry = self._entries.left()
        if isinstance(entry, Skipped) and not entry.asked and error is None:
            hint = 'Ask: `with app.lock(name, on_busy="skip") as held:` and then `if held:`; or decorate a function.'
            why = "was busy and the block ran without it: nobody asked whether it is held"
            raise UseError(f"{self._spot} {why}", hint=hint)
        return entry if isinstance(entry, Inside) else None

    async def _release(self, entry: Inside) -> None:
        self._entries.close(entry)
        loss = await entry.hold.end()
        if loss is not None:
            raise loss

    async def _end(self, hold: Hold) -> LockLost | None:
        """The work is done, whatever is met here: what cannot be given back is free when its time is over."""
        if hold.over:  # released inside of the block, where its loss was told
            return None
        try:
            return await hold.end()
        except StoreError as error:
            hold.log.warning("%s could not be given back, it is free in %g s: %s", self._spot, hold.ttl / 1e6, error)
            return None

    def _around(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs) if self else None

        return guarded

    def _around_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await fn(*args, **kwargs) if self else None

        return guarded

    def _held(self) -> Inside:
        entry = self._entries.current()
        if isinstance(entry, Inside):
            return entry
        raise self._not_held()

    def _last(self) -> Inside:
        entry = self._entries.current() or self._entries.last
        if isinstance(entry, Inside):
            return entry
        raise self._not_held()

    def _not_held(self) -> UseError:
        return UseError(f"{self._spot} is not held here", hint="Take it first: with lock: ..., or lock.acquire().")


def jittered() -> Iterator[float]:
    """Seconds between tries: longer and longer, and no two that wait are in step."""
    pause = _FIRST
    while True:
        yield pause * random.uniform(0.5, 1.0)
        pause = min(pause * 1.5, _MOST)


def _tell(loss: LockLost | None, error: BaseException | None, *, ours: bool = False) -> None:
    """Raise the loss at the end of a block; what the block raised by itself wins, and is told of it."""
    if loss is None:
        return
    if error is None or ours:
        raise loss from None
    error.add_note(str(loss))
