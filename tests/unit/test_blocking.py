"""Blocking twins: made of the async method, with its signature and docstring."""

from __future__ import annotations

import asyncio
import inspect
import pydoc
from collections.abc import AsyncGenerator, AsyncIterator

import pytest

from mainspring.client import blocking
from mainspring.errors import WouldBlockLoop


class Shelf:
    _PATH = "app.shelf"

    async def atake(self, name: str, /, n: int = 1, *, fast: bool = False) -> list[str]:
        """Take books.

        Each book is taken once.
        """
        await asyncio.sleep(0)
        return [f"{name} {fast}"] * n

    take = blocking.twin(atake)

    async def alook(self) -> int:
        return 7

    look = blocking.twin(alook)

    def abooks(self, most: int = 3) -> AsyncIterator[int]:
        """All books."""
        if most < 0:
            raise ValueError(most)
        return blocking.ItemStream(self._batches(most))

    books = blocking.iterator_twin(abooks)

    async def _batches(self, most: int) -> AsyncGenerator[list[int]]:
        for start in range(0, most, 2):
            yield list(range(start, min(start + 2, most)))


def test_a_twin_runs_the_async_method() -> None:
    assert Shelf().take("a", n=2, fast=True) == ["a True", "a True"]
    assert Shelf().look() == 7


def test_a_twin_has_the_signature_and_docstring_of_the_async_method() -> None:
    assert inspect.isfunction(Shelf.take)
    assert not inspect.iscoroutinefunction(Shelf.take)
    assert inspect.signature(Shelf.take) == inspect.signature(Shelf.atake)
    assert (Shelf.take.__name__, Shelf.take.__qualname__) == ("take", "Shelf.take")
    assert inspect.getdoc(Shelf.take) == "Take books.\n\nEach book is taken once."
    assert inspect.getdoc(Shelf.atake) == "Async version of ``take``.\n\nTake books.\n\nEach book is taken once."
    assert inspect.getdoc(Shelf.alook) == "Async version of ``look``."
    shown = pydoc.render_doc(Shelf)
    assert "(self, name: 'str', /, n: 'int' = 1, *, fast: 'bool' = False) -> 'list[str]'" in shown


def test_a_twin_that_returns_an_iterator_reads_batch_by_batch() -> None:
    assert list(Shelf().books(5)) == [0, 1, 2, 3, 4]
    assert str(inspect.signature(Shelf.books)) == "(self, most: 'int' = 3) -> 'Iterator[int]'"
    with pytest.raises(ValueError, match="-1"):
        Shelf().books(-1)


async def test_the_async_iterator_gives_items_and_can_be_closed() -> None:
    assert [each async for each in Shelf().abooks(5)] == [0, 1, 2, 3, 4]
    stream = Shelf().abooks(5)
    assert isinstance(stream, blocking.ItemStream)
    assert await anext(stream) == 0
    await stream.aclose()
    assert [each async for each in stream] == []


async def test_inside_a_loop_the_error_names_the_async_method() -> None:
    with pytest.raises(WouldBlockLoop, match=r"app\.shelf\.take\(\)") as refused:
        Shelf().take("a")
    assert refused.value.hint == "Use: await app.shelf.atake(...)"
    with pytest.raises(WouldBlockLoop) as refused:
        Shelf().books()
    assert refused.value.hint == "Use: async for ... in app.shelf.abooks(...)"
