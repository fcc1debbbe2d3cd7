"""Lock: a named, renewed lease with a fencing token, for any code. One holder in the whole fleet; a semaphore has N."""

from __future__ import annotations

import asyncio
import functools
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, cast, get_args

from mainspring.client import blocking
from mainspring.common.callables import check_guardable, is_async, parameters_of
from mainspring.common.handles import Handle
from mainspring.common.pause import GrowingPause
from mainspring.errors import InvalidOption, LockBusy, LockLost, StoreError, UseError
from mainspring.locks.entries import HeldEntry, LockEntries, SkippedEntry
from mainspring.locks.hold import CancelScope, Hold, LockHolder
from mainspring.locks.names import LockName, check_ttl, check_wait

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.common.duration import Duration

F = TypeVar("F", bound=Callable[..., Any])
OnBusy = Literal["raise", "skip"]

_FIRST_POLL, _LONGEST_POLL = 0.05, 1.0
"""Seconds between the first two tries of a caller that waits, and between later tries."""


class AcquireRequest(NamedTuple):
    """A request for the lock."""

    hold: Hold
    patience: float
    """Seconds to wait."""
    own: bool
    """Whether the caller holds the lock already. Then it would wait for itself."""


class Lock(Handle):
    """Use it with ``with``, ``async with``, as a decorator, or with ``acquire`` and ``release``.

    The lock is renewed in the background while the process lives; after a crash it is free within its ttl. Each use
    of one object is a hold of its own: two threads that share the object wait for each other like two processes.
    ``token``, ``lost``, ``extend`` and ``release`` refer to the hold of the current thread or task. If it has none,
    they refer to the newest hold of the object.
    """

    _INSTEAD = "Call app.lock(name) where you need it."
    _PATH = "lock"

    def __init__(
        self, app: Mainspring, lock_name: LockName, ttl: Duration, wait: Duration | None, on_busy: OnBusy
    ) -> None:
        self.name = lock_name.name
        self._app = app
        self._lock_name = lock_name
        self._ttl = check_ttl(ttl, str(lock_name))
        self._wait = check_wait(wait, str(lock_name))
        if on_busy not in get_args(OnBusy):
            hint = 'on_busy="skip" does not run the guarded code. wait="10s" waits up to 10 s first.'
            raise InvalidOption("on_busy", on_busy, "must be 'raise' or 'skip'", subject=str(lock_name), hint=hint)
        self._skips = on_busy == "skip"
        self._entries = LockEntries()
        self._declared = lock_name.kind == "lock"

    def register(self, known: dict[str, int]) -> Self:
        """Add itself to the semaphores of an app. A semaphore of the same name with another size is refused."""
        if known.setdefault(self.name, self._lock_name.size) != self._lock_name.size:
            why = f"is the name of a semaphore of size {known[self.name]}"
            hint = "Declare it once, or choose another name."
            raise InvalidOption("name", self.name, why, subject=repr(self), hint=hint)
        return self

    # ---- use ----------------------------------------------------------------------------------

    def acquire(self, wait: Duration | None = None) -> bool:
        """Acquire the lock and return True. ``wait``: how long to wait for it; None: as declared.

        If the lock is still busy: ``LockBusy``, or with ``on_busy="skip"`` return False.
        """
        return self._add_hold(blocking.run("lock.acquire", functools.partial(self._acquire, self._build_request(wait))))

    async def aacquire(self, wait: Duration | None = None) -> bool:
        """Async version of ``acquire``."""
        return self._add_hold(await self._acquire(self._build_request(wait)))

    def release(self) -> None:
        """Release the lock; ``LockLost`` if it was lost before. A new holder of the lock is not affected."""
        blocking.run("lock.release", functools.partial(self._release, self._held_entry()))

    async def arelease(self) -> None:
        """Async version of ``release``."""
        await self._release(self._held_entry())

    def extend(self, by: Duration) -> None:
        """Hold the lock for at least ``by`` from now, also without a renewal; ``LockLost`` if it was lost."""
        blocking.run(
            "lock.extend", functools.partial(self._held_entry().hold.extend, check_ttl(by, str(self._lock_name), "by"))
        )

    async def aextend(self, by: Duration) -> None:
        """Async version of ``extend``."""
        await self._held_entry().hold.extend(check_ttl(by, str(self._lock_name), "by"))

    def check(self) -> None:
        """Raise ``LockLost`` if the lock was lost. Use it in loops: it does not ask the store."""
        self._held_entry().hold.check()

    def __call__(self, fn: F) -> F:
        """Guard a function: each call acquires the lock. With ``on_busy="skip"``, a busy lock makes it return None."""
        check_guardable(fn, "lock", str(self._lock_name), "for a task, decorate the function below @app.task.")
        _refuse_placeholder(self._lock_name, fn)
        return cast("F", self._guard_async(fn) if is_async(fn) else self._guard(fn))

    def __enter__(self) -> Self:
        self._begin_block(blocking.run(f"with {self!r}", functools.partial(self._acquire, self._build_request())))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        entry = self._end_block(error)
        if entry is not None:
            _raise_loss(blocking.run(f"with {self!r}", functools.partial(self._release_quietly, entry.hold)), error)

    async def __aenter__(self) -> Self:
        self._begin_block(await self._acquire(self._build_request()), CancelScope())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        entry = self._end_block(error)
        if entry is not None:
            ours = entry.scope is not None and entry.scope.leave(error)
            _raise_loss(await self._release_quietly(entry.hold), error, ours=ours)

    # ---- inspect ------------------------------------------------------------------------------

    @property
    def token(self) -> int:
        """The fencing token: larger than the token of every earlier holder. Also after the release or the loss."""
        return self._last_entry().hold.token

    @property
    def lost(self) -> bool:
        """Whether the last hold was lost. Does not ask the store."""
        entry = self._entries.current() or self._entries.last
        return isinstance(entry, HeldEntry) and (entry.hold.was_lost if entry.over else entry.hold.lost)

    def __bool__(self) -> bool:
        """Whether the lock is held here. A ``with`` block with ``on_busy="skip"`` must check it."""
        entry = self._entries.current()
        if isinstance(entry, SkippedEntry):
            entry.asked = True
        return isinstance(entry, HeldEntry) and not entry.hold.lost

    async def ais_locked(self) -> bool:
        """Whether the lock has a holder, in any process; for a semaphore, whether it has no capacity left."""
        rows = await (await self._app.client.store()).buckets([self._lock_name.bucket])
        return any(row.used >= row.size for row in rows)

    is_locked = blocking.twin(ais_locked)

    async def aremaining(self) -> timedelta:
        """Return the time until the lock is free without a renewal; zero if it is free.

        For a full semaphore: the time until its first holder is gone.
        """
        if not await self.ais_locked():
            return timedelta(0)
        rows = await (await self._app.client.store()).holders(self._lock_name.bucket)
        return timedelta(microseconds=min((row.left for row in rows), default=0))

    remaining = blocking.twin(aremaining)

    def __repr__(self) -> str:
        return f"<{self._lock_name.kind.capitalize()} {self.name}>"

    # ---- private ------------------------------------------------------------------------------

    def _build_request(self, wait: Duration | None = None) -> AcquireRequest:
        """Build the request in the thread and task of the caller: the hold remembers both."""
        patience = self._wait if wait is None else check_wait(wait, str(self._lock_name))
        return AcquireRequest(Hold(self._app.client, self._lock_name, self._ttl), patience, self._entries.is_own())

    async def _acquire(self, request: AcquireRequest) -> Hold | None:
        """Acquire the lock. Return None if it is busy and ``on_busy="skip"``."""
        if not self._declared:
            await (await self._app.client.store()).declare_limits([self._lock_name.limit])
            self._declared = True
        began, polls = time.monotonic(), new_poll_pause()
        while not (await request.hold.ask()).ok:
            waited = time.monotonic() - began
            if waited >= request.patience or self._waits_for_itself(request):
                if not self._skips:
                    raise await self._build_busy_error(request, waited if request.patience else 0.0)
                return None
            await asyncio.sleep(min(polls.next(), request.patience - waited))
        return request.hold

    def _waits_for_itself(self, request: AcquireRequest) -> bool:
        return request.own and self._lock_name.kind == "lock"

    async def _build_busy_error(self, request: AcquireRequest, waited: float) -> LockBusy:
        if self._waits_for_itself(request):
            hint = "This object holds the lock already; it cannot be acquired twice. Leave the outer `with` first."
            return LockBusy(str(self._lock_name), "the same thread or task", hint=hint)
        holder = ""
        with suppress(StoreError):
            for row in await (await self._app.client.store()).holders(self._lock_name.bucket, 1):
                found = LockHolder.read(row.info)
                holder = f"{found}{', which is this process' if found.is_here else ''}"
        return LockBusy(str(self._lock_name), holder, waited)

    def _add_hold(self, hold: Hold | None) -> bool:
        if hold is None:
            return False
        hold.keep()
        self._entries.add(hold)
        return True

    def _begin_block(self, hold: Hold | None, scope: CancelScope | None = None) -> None:
        """Begin a block, with the lock or skipped."""
        if hold is None:
            self._entries.skip()
            return
        hold.on_lost = None if scope is None else scope.cancel
        hold.keep()
        self._entries.add(hold, scope, block=True)

    def _end_block(self, error: BaseException | None) -> HeldEntry | None:
        """End a block. Return its entry; None if the block was skipped."""
        entry = self._entries.end_block()
        if isinstance(entry, SkippedEntry) and not entry.asked and error is None:
            hint = 'Write `with app.lock(name, on_busy="skip") as held:` and `if held:`, or decorate a function.'
            why = "was busy, and the block ran without it and did not check whether it holds the lock"
            raise UseError(f"{self._lock_name} {why}", hint=hint)
        return entry if isinstance(entry, HeldEntry) else None

    async def _release(self, entry: HeldEntry) -> None:
        self._entries.close(entry)
        loss = await entry.hold.end()
        if loss is not None:
            raise loss

    async def _release_quietly(self, hold: Hold) -> LockLost | None:
        """Release the lock after a block. A store error is only logged: the work is done, the ttl frees the lock."""
        if hold.over:  # released inside the block, which has raised its loss
            return None
        try:
            return await hold.end()
        except StoreError as error:
            hold.log.warning("%s could not be released, it is free in %g s: %s", self._lock_name, hold.ttl / 1e6, error)
            return None

    def _guard(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            with self:
                return fn(*args, **kwargs) if self else None

        return guarded

    def _guard_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            async with self:
                return await fn(*args, **kwargs) if self else None

        return guarded

    def _held_entry(self) -> HeldEntry:
        entry = self._entries.current()
        if isinstance(entry, HeldEntry):
            return entry
        raise self._not_held_error()

    def _last_entry(self) -> HeldEntry:
        entry = self._entries.current() or self._entries.last
        if isinstance(entry, HeldEntry):
            return entry
        raise self._not_held_error()

    def _not_held_error(self) -> UseError:
        return UseError(
            f"{self._lock_name} is not held here", hint="Acquire it first: with lock: ..., or lock.acquire()."
        )


def new_poll_pause() -> GrowingPause:
    """Return the pauses between two tries of a caller that waits: growing, and jittered so that callers spread."""
    return GrowingPause(_FIRST_POLL, longest=_LONGEST_POLL, factor=1.5)


def _raise_loss(loss: LockLost | None, error: BaseException | None, *, ours: bool = False) -> None:
    """Raise the loss at the end of a block. If the block raised an error itself, add the loss to it as a note."""
    if loss is None:
        return
    if error is None or ours:
        raise loss from None
    error.add_note(str(loss))


def _refuse_placeholder(lock: LockName, fn: Callable[..., Any]) -> None:
    """Refuse a lock of a function whose name has an argument in braces: nothing replaces it."""
    for each in parameters_of(fn):
        if f"{{{each.name}}}" in lock.name:
            why = f"is plain text: {{{each.name}}} is not replaced, so every call would take the same {lock.kind}"
            hint = f'Take the {lock.kind} inside the function, with the name f"{lock.name}".'
            raise InvalidOption("name", lock.name, why, subject=str(lock), hint=hint)
