"""Breaker: stops tasks and other code while a service that they use keeps failing, for the whole fleet."""

from __future__ import annotations

import contextvars
import functools
import logging
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from mainspring.breakers.counting import BreakerEnd
from mainspring.breakers.declare import DeclaredBreaker, is_failure
from mainspring.breakers.swap import count_now
from mainspring.client import blocking
from mainspring.codec.failures import words_of
from mainspring.common.callables import check_guardable, is_async
from mainspring.common.handles import Handle
from mainspring.errors import BreakerOpen, InvalidOption, StoreError
from mainspring.limits.declare import bind
from mainspring.limits.holder import CapacityHolder
from mainspring.limits.records import Bucket, Limit
from mainspring.options import checks
from mainspring.tasks.notify import announce

if TYPE_CHECKING:
    from mainspring.app import Mainspring

F = TypeVar("F", bound=Callable[..., Any])

REPORT_EVERY = 1.0
"""Seconds between two reports of successes to the store, for a breaker with ``rate=``."""

log = logging.getLogger("mainspring.breakers")


class BreakerEntry:
    """One call or block that a breaker guards."""

    __slots__ = ("counts", "holder", "name", "over", "started")

    def __init__(
        self, name: str, started: int = 0, holder: CapacityHolder | None = None, *, counts: bool = True
    ) -> None:
        self.name = name
        self.started = started
        """The time of the store when a probe started; 0 if it is no probe, also if the breaker opens meanwhile."""
        self.holder = holder
        """The capacity of a probe."""
        self.counts = counts
        """False inside another call or block of the same breaker: only the outer one is counted."""
        self.over = False
        """The block has ended. asyncio and frameworks copy contexts, and a copy may outlive the block."""


_entries: contextvars.ContextVar[tuple[BreakerEntry, ...]] = contextvars.ContextVar("mainspring_breakers", default=())


class Breaker(Handle, DeclaredBreaker):
    """``breaker=`` guards tasks: their jobs wait while the breaker is open.

    ``with``, ``async with`` and the decorator guard other code: while the breaker is open they raise ``BreakerOpen``,
    or call ``fallback``.
    """

    _INSTEAD = "Call app.breaker(name, ...) again."

    def __init__(self, app: Mainspring, guard: DeclaredBreaker) -> None:
        super().__init__(guard.name, guard.options)
        self._app = app
        [(self._limit, _, _)] = bind("", (self,), f"breaker {self.name!r}")
        self._known = False
        self._lock = threading.Lock()
        self._successes = 0
        self._reported = time.monotonic()
        self._open: list[BreakerEntry] = []

    def at(self, *, fallback: Callable[..., Any]) -> Breaker:
        """Return the same breaker with a fallback, for a decorated function. It is called while the breaker is open."""
        return Breaker(
            self._app, DeclaredBreaker(self.name, {**self.options, "fallback": checks.fallback(fallback, "fallback")})
        )

    def register(self, known: dict[str, Limit]) -> Self:
        """Add itself to the breakers of an app. A breaker of the same name with other options is refused."""
        if known.setdefault(self.name, self._limit) != self._limit:
            why = "is the name of a breaker with other options"
            hint = "Declare it once, and pass the object that app.breaker(...) returned."
            raise InvalidOption("name", self.name, why, subject=repr(self), hint=hint)
        return self

    def __call__(self, fn: F) -> F:
        """Guard a function."""
        self._check_function(fn)
        return cast("F", self._guard_async(fn) if is_async(fn) else self._guard(fn))

    def __enter__(self) -> Self:
        self._push(blocking.run(f"with {self!r}", functools.partial(self._enter, self._is_nested())))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        blocking.run(f"with {self!r}", functools.partial(self._exit, self._pop(), error))

    async def __aenter__(self) -> Self:
        self._push(await self._enter(self._is_nested()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._exit(self._pop(), error)

    def __repr__(self) -> str:
        return f"<Breaker {self.name}>"

    # ---- private ------------------------------------------------------------------------------

    def _check_function(self, fn: Any) -> None:
        subject = f"breaker {self.name!r}"
        check_guardable(fn, "breaker", subject, "for a task use breaker= instead.")
        if self.fallback is not None and is_async(self.fallback) and not is_async(fn):
            hint = "The fallback of a def must be a def."
            why = "is an async def, and the function is a def"
            raise InvalidOption("fallback", self.fallback, why, subject=subject, hint=hint)

    def _guard(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                self.__enter__()
            except BreakerOpen:
                if self.fallback is None:
                    raise
                return self.fallback(*args, **kwargs)
            error: BaseException | None = None
            try:
                return fn(*args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                self.__exit__(None, error, None)

        return guarded

    def _guard_async(self, fn: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(fn)
        async def guarded(*args: Any, **kwargs: Any) -> Any:
            try:
                await self.__aenter__()
            except BreakerOpen:
                if self.fallback is None:
                    raise
                value = self.fallback(*args, **kwargs)
                return await value if is_async(self.fallback) else value
            error: BaseException | None = None
            try:
                return await fn(*args, **kwargs)
            except BaseException as raised:
                error = raised
                raise
            finally:
                await self.__aexit__(None, error, None)

        return guarded

    def _is_nested(self) -> bool:
        """Whether the caller is inside a block or a job of this breaker already, which then reports the result."""
        from mainspring.worker.run.context import current

        attempt = current.get(None)
        own = attempt is not None and any(limit.name == self._limit.name for limit in attempt.spec.limits)
        return own or any(entry.name == self.name and not entry.over for entry in _entries.get())

    async def _enter(self, nested: bool) -> BreakerEntry:
        if nested:
            return BreakerEntry(self.name, counts=False)
        try:
            return await self._admit()
        except StoreError as error:
            log.warning("%r lets every call through, because the store does not answer: %s", self, error)
            return BreakerEntry(self.name)

    async def _admit(self) -> BreakerEntry:
        store, bucket = await self._app.client.store(), Bucket(self._limit.name)
        if not self._known:
            await store.declare_limits([self._limit])
            self._known = True
        found = await store.buckets([bucket])
        if not found or found[0].breaker is None or found[0].breaker.state == "closed":
            return BreakerEntry(self.name)
        holder = CapacityHolder(self._app.client, self, [bucket], [self._limit])
        said = await holder.ask()
        if said.ok:
            holder.keep()
            await self._count_probe(holder, said.now)
            return BreakerEntry(self.name, said.now, holder)
        wait = self.options["open_for"] if said.next_at is None else max(said.next_at - said.now, 0)
        raise BreakerOpen(self.name, timedelta(microseconds=wait), found[0].breaker.error)

    async def _count_probe(self, holder: CapacityHolder, started: int) -> None:
        """Report the first probe. The block runs also if the store does not answer: only the event is missing then."""
        try:
            await self._count(BreakerEnd("start", started))
        except StoreError as error:
            log.warning("%r could not report its probe to the store: %s", self, error)
        except BaseException:
            holder.give_up()
            raise

    async def _exit(self, entry: BreakerEntry, error: BaseException | None) -> None:
        if not entry.counts:
            return
        fault = words_of(error) if error is not None and is_failure(self, error) else ""
        try:
            await self._report(entry, error is None, fault)
            if entry.holder is not None:
                await entry.holder.leave()
        except BaseException as trouble:
            if entry.holder is not None:
                entry.holder.give_up()
            if not isinstance(trouble, StoreError):
                raise
            log.warning("%r could not report the result of a call to the store: %s", self, trouble)

    async def _report(self, entry: BreakerEntry, succeeded: bool, fault: str) -> None:
        good = int(succeeded)
        if self.uses_rate and entry.holder is None:
            good = self._take_successes(good, fault)
        ends = [BreakerEnd("success", entry.started, good)] if good else []
        if fault:
            ends.append(BreakerEnd("failure", entry.started, error=fault))
        await self._count(*ends)

    async def _count(self, *ends: BreakerEnd) -> None:
        changed = await count_now(await self._app.client.store(), self._limit.name, ends) if ends else ()
        for row in changed:
            announce(self._app.hooks, row)

    def _take_successes(self, good: int, fault: str) -> int:
        """Return the number of successes to report now: all of them, together with a failure or after one second."""
        with self._lock:
            self._successes += good
            now = time.monotonic()
            if not fault and now - self._reported < REPORT_EVERY:
                return 0
            self._reported, good, self._successes = now, self._successes, 0
        return good

    def _push(self, entry: BreakerEntry) -> None:
        self._open.append(entry)
        _entries.set((*[each for each in _entries.get() if not each.over], entry))

    def _pop(self) -> BreakerEntry:
        """Remove the last entry of this context; if the block was entered in another context, the last of all."""
        with self._lock:
            mine = [each for each in _entries.get() if each in self._open]
            entry = (mine or self._open)[-1]
            self._open.remove(entry)
        entry.over = True
        return entry
