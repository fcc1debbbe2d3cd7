"""Concurrent calls go together, and each still gets its own reply or its own error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mainspring.stores.joining import Joiner

pytestmark = pytest.mark.asyncio


class Refused(Exception):
    """Nothing was applied."""


class Server:
    """Doubles numbers; a negative one is refused, and whoever goes with it; it answers when the test says so."""

    def __init__(self) -> None:
        self.heard: list[list[int]] = []
        self.open = asyncio.Event()
        self.cancelled = 0

    async def alone(self, number: int) -> int:
        return (await self.together([number]))[0]

    async def together(self, numbers: Sequence[int]) -> list[int]:
        self.heard.append(list(numbers))
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        if 13 in numbers:
            raise ConnectionError("the reply was lost")
        if min(numbers) < 0:
            raise Refused
        return [2 * number for number in numbers]

    def joiner(self, most: int = 100) -> Joiner[int, int]:
        return Joiner(
            self.alone, self.together, undone=lambda error: isinstance(error, Refused), size=lambda _: 1, most=most
        )


async def ask(joiner: Joiner[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    asked = [asyncio.create_task(joiner.call(number)) for number in numbers]
    for _ in range(3):
        await asyncio.sleep(0)
    return asked


async def test_the_first_goes_at_once_and_the_others_go_together() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, 3, 4)
    assert server.heard == [[1]]
    server.open.set()
    assert await asyncio.gather(*asked) == [2, 4, 6, 8]
    assert server.heard == [[1], [2, 3, 4]]


async def test_no_more_go_together_than_fit() -> None:
    server = Server()
    asked = await ask(server.joiner(most=2), 1, 2, 3, 4)
    server.open.set()
    await asyncio.gather(*asked)
    assert server.heard == [[1], [2, 3], [4]]


async def test_one_that_is_refused_fails_alone() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, -3, 4)
    server.open.set()
    assert await asyncio.gather(*asked, return_exceptions=True) == [2, 4, asked[2].exception(), 8]
    assert isinstance(asked[2].exception(), Refused)
    assert server.heard == [[1], [2, -3, 4], [2], [-3], [4]]


async def test_an_unknown_outcome_is_told_to_all_and_nothing_is_repeated() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 13, 4)
    server.open.set()
    await asyncio.wait(asked)
    assert isinstance(asked[1].exception(), ConnectionError)
    assert isinstance(asked[2].exception(), ConnectionError)
    assert server.heard == [[1], [13, 4]]


async def test_who_leaves_does_not_stop_the_others() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, 3)
    asked[0].cancel()
    await asyncio.wait(asked[:1])
    for _ in range(5):
        await asyncio.sleep(0)
    assert server.heard == [[1], [2, 3]]
    assert server.cancelled == 1
    asked[1].cancel()
    server.open.set()
    assert await asked[2] == 6


async def test_a_call_that_was_given_up_before_it_went_is_not_made() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, 3)
    asked[1].cancel()
    server.open.set()
    await asyncio.wait(asked)
    assert server.heard == [[1], [3]]
