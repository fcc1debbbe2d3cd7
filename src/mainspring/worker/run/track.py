"""``ctx.track(items)``: an iteration that reports its own progress."""

from __future__ import annotations

from collections.abc import AsyncIterable, AsyncIterator, Iterable, Iterator
from typing import TYPE_CHECKING, Generic, Self, TypeVar

if TYPE_CHECKING:
    from mainspring.worker.run.context import Context

A = TypeVar("A")


class Track(Generic[A]):
    """Iterates and reports: ``for``, and ``async for`` over either kind."""

    __slots__ = ("_around", "_context", "_items", "_note", "_through", "_total")

    def __init__(self, context: Context, items: Iterable[A] | AsyncIterable[A], note: str, total: int | None) -> None:
        self._context = context
        self._items = items
        self._note = note
        size = getattr(items, "__len__", None)
        self._total = total if total is not None or size is None else int(size())
        self._through = self._go_through()
        self._around = self._go_around()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> A:
        return next(self._through)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> A:
        return await anext(self._around)

    def _go_through(self) -> Iterator[A]:
        if not isinstance(self._items, Iterable):
            raise TypeError(f"track: {type(self._items).__name__} needs `async for`")
        done = 0
        for item in self._items:
            self._step(done)
            yield item
            done += 1
        self._context.progress(done, self._total or done, self._note)

    async def _go_around(self) -> AsyncIterator[A]:
        if not isinstance(self._items, AsyncIterable):
            for item in self._through:
                yield item
            return
        done = 0
        async for item in self._items:
            self._step(done)
            yield item
            done += 1
        self._context.progress(done, self._total or done, self._note)

    def _step(self, done: int) -> None:
        self._context.check()
        self._context.progress(done, self._total, self._note)
