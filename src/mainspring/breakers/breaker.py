"""Breaker: guards tasks, and any code, against what fails again and again, for the whole fleet."""

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

from mainspring.breakers.declare import DeclaredBreaker, is_failure
from mainspring.client import blocking
from mainspring.codec.failures import words_of
from mainspring.common.callables import is_async
from mainspring.common.guardable import check_guardable
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

TELL = 1.0
"""Seconds between two words about successes of which only the number matters."""

log = logging.getLogger("mainspring.breakers")


class BreakerEntry:
    """One passage through a breaker."""

    __slots__ = ("counts", "name", "over", "started", "visit")

    def __init__(
        self, name: str, started: int = 0, visit: CapacityHolder | None = None, *, counts: bool = True
    ) -> None:
        self.name = name
        self.started = started
        """By the store's clock, if it is a probe; else it is none, whenever the breaker opens."""
        self.visit = visit
        """The place of a probe."""
        self.counts = counts
        """False inside of another passage through the same breaker."""
        self.over = False
        """Contexts are copied (by tasks, by frameworks), and a copy may outlive the block."""


_entries: contextvars.ContextVar[tuple[BreakerEntry, ...]] = contextvars.ContextVar("mainspring_breakers", default=())


class Breaker(Handle, DeclaredBreaker):
    """``breaker=`` guards tasks: their jobs wait while it is open. ``with``, ``async with`` and the decorator guard any
    code: ``BreakerOpen`` is raised instead of running it, or ``fallback`` is called in its place."""

    INSTEAD = "Make it again: app.breaker(name, ...)."

    def __init__(self, app: Mainspring, guard: DeclaredBreaker) -> None:
        super().__init__(guard.name, guard.options)
        self._app = app
        [(self._limit, _, _)] = bind("", (self,), f"breaker {self.name!r}")
        self._known = False
        self._lock = threading.Lock()
        self._good = 0
        self._told = time.monotonic()
        self._inside: list[BreakerEntry] = []

    def at(self, *, fallback: Callable[..., Any]) -> Breaker:
        """The same breaker with a fallback: what a function that it decorates returns while it is open."""
        return Breaker(
            self._app, DeclaredBreaker(self.name, {**self.options, "fallback": checks.fallback(fallback, "fallback")})
        )

    def told_to(self, known: dict[str, Limit]) -> Self:
        """Itself; refused if another of its name is known with other options."""
        if known.setdefault(self.name, self._limit) != self._limit:
            why, hint = (
                "is that of a breaker with other options",
                "Declare it once and pass what app.breaker(...) returned.",
            )
            raise InvalidOption("name", self.name, why, subject=repr(self), hint=hint)
        return self

    def __call__(self, fn: F) -> F:
        """Guard a function."""
        self._check(fn)
        return cast("F", self._guard_async(fn) if is_async(fn) else self._guard(fn))

    def __enter__(self) -> Self:
        self._push(blocking.run(f"with {self!r}", self._enter(self._is_inside())))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        blocking.run(f"with {self!r}", self._exit(self._popped(), error))

    async def __aenter__(self) -> Self:
        self._push(await self._enter(self._is_inside()))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None
    ) -> None:
        await self._exit(self._popped(), error)

    def __repr__(self) -> str:
        return f"<Breaker {self.name}>"

    # ---- private ------------------------------------------------------------------------------

    def _check(self, fn: Any) -> None:
        subject = f"breaker {self.name!r}"
        check_guardable(fn, "breaker", subject, "of a task say breaker= instead.")
        if self.fallback is not None and is_async(self.fallback) and not is_async(fn):
            hint = "A def needs a def as its fallback."
            raise InvalidOption(
                "fallback", self.fallback, "is async and the function is not", subject=subject, hint=hint
            )

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

    def _is_inside(self) -> bool:
        """Whether the caller has passed it already, or runs in a job that has: that one tells how it ended."""
        from mainspring.worker.run.context import current

        attempt = current.get(None)
        own = attempt is not None and any(limit.name == self._limit.name for limit in attempt.spec.limits)
        return own or any(entry.name == self.name and not entry.over for entry in _entries.get())

    async def _enter(self, inside: bool) -> BreakerEntry:
        if inside:
            return BreakerEntry(self.name, counts=False)
        try:
            return await self._admitted()
        except StoreError as error:
            log.warning("%r lets everything through: the store cannot be asked: %s", self, error)
            return BreakerEntry(self.name)

    async def _admitted(self) -> BreakerEntry:
        store, bucket = await self._app.client.store(), Bucket(self._limit.name)
        if not self._known:
            await store.declare_limits([self._limit])
            self._known = True
        found = await store.buckets([bucket])
        if not found or found[0].breaker is None or found[0].breaker.state == "closed":
            return BreakerEntry(self.name)
        visit = CapacityHolder(self._app.client, self, [bucket], [self._limit])
        said = await visit.ask()
        for row in said.breakers:
            announce(self._app.hooks, row, said.now)
        if said.ok:
            visit.keep()
            return BreakerEntry(self.name, said.now, visit)
        wait = self.options["open_for"] if said.next_at is None else max(said.next_at - said.now, 0)
        raise BreakerOpen(self.name, timedelta(microseconds=wait), found[0].breaker.error)

    async def _exit(self, entry: BreakerEntry, error: BaseException | None) -> None:
        if not entry.counts:
            return
        fault = words_of(error) if error is not None and is_failure(self, error) else ""
        try:
            await self._tell(entry, error is None, fault)
            if entry.visit is not None:
                await entry.visit.leave()
        except BaseException as trouble:
            if entry.visit is not None:
                entry.visit.give_up()
            if not isinstance(trouble, StoreError):
                raise
            log.warning("%r was not told how a call ended: %s", self, trouble)

    async def _tell(self, entry: BreakerEntry, succeeded: bool, fault: str) -> None:
        good = int(succeeded)
        if self.weighs and entry.visit is None:
            good = self._due(good, fault)
        if not good and not fault:
            return
        store = await self._app.client.store()
        changed = await store.report_breaker(self._limit.name, entry.started, good, fault)
        if changed is not None:
            announce(self._app.hooks, changed)

    def _due(self, good: int, fault: str) -> int:
        """How many successes are to be told now: all there are, with a failure or after a second."""
        with self._lock:
            self._good += good
            now = time.monotonic()
            if not fault and now - self._told < TELL:
                return 0
            self._told, good, self._good = now, self._good, 0
        return good

    def _push(self, entry: BreakerEntry) -> None:
        self._inside.append(entry)
        _entries.set((*[each for each in _entries.get() if not each.over], entry))

    def _popped(self) -> BreakerEntry:
        """The last of its passages in this context; if it was entered in another one, the last of all."""
        with self._lock:
            mine = [each for each in _entries.get() if each in self._inside]
            entry = (mine or self._inside)[-1]
            self._inside.remove(entry)
        entry.over = True
        return entry
