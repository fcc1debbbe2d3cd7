"""Concurrent calls go together, and each still gets its own reply or its own error."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from mainspring.stores.shared.joining import Joiner

pytestmark = pytest.mark.asyncio


class Refused(Exception):
    """Nothing was applied."""


class Server:
    """Doubles numbers. It refuses a joint call with a negative number, and answers when the test says so."""

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

    def joiner(self, most: int = 100, flights: int = 1) -> Joiner[int, int]:
        return Joiner(
            self.alone,
            self.together,
            undone=lambda error: isinstance(error, Refused),
            size=lambda _: 1,
            most=most,
            flights=flights,
        )


async def ask(joiner: Joiner[int, int], *numbers: int) -> list[asyncio.Task[int]]:
    asked = [asyncio.create_task(joiner.call(number)) for number in numbers]
    for _ in range(5):
        await asyncio.sleep(0)
    return asked


async def test_many_calls_are_divided_between_the_flights() -> None:
    """In the order in which they came."""
    server = Server()
    asked = await ask(server.joiner(flights=2), *range(1, 12))
    assert server.heard == [[1], [2, 3, 4, 5, 6, 7]]
    server.open.set()
    assert await asyncio.gather(*asked) == list(range(2, 24, 2))
    assert server.heard == [[1], [2, 3, 4, 5, 6, 7], [8, 9, 10, 11]]


async def test_a_few_calls_go_in_one_flight() -> None:
    server = Server()
    asked = await ask(server.joiner(flights=2), 1, 2, 3, 4, 5)
    server.open.set()
    await asyncio.gather(*asked)
    assert server.heard == [[1], [2, 3, 4, 5]]


async def test_two_flights_do_not_leave_in_one_step_of_the_loop() -> None:
    """Also when both came back in one step: the server would be idle while the callers make their next calls."""
    left: list[int] = []
    step, gate = 0, asyncio.Event()

    async def alone(number: int) -> int:
        return (await together([number]))[0]

    async def together(numbers: Sequence[int]) -> Sequence[int]:
        left.append(step)
        await gate.wait()
        return numbers

    joiner: Joiner[int, int] = Joiner(alone, together, undone=lambda _: False, size=lambda _: 1, most=100, flights=2)

    async def produce() -> None:
        for number in range(5):
            await joiner.call(number)

    producers = asyncio.gather(*(produce() for _ in range(12)))
    while not producers.done():
        for _ in range(10):
            await asyncio.sleep(0)
            step += 1
        gate.set()  # whoever is on the way comes back in one step
        gate = asyncio.Event()
    await producers
    assert len(left) > 8
    assert len(left) == len(set(left))


async def test_the_first_call_goes_at_once_and_the_others_go_together() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, 3, 4)
    assert server.heard == [[1]]
    server.open.set()
    assert await asyncio.gather(*asked) == [2, 4, 6, 8]
    assert server.heard == [[1], [2, 3, 4]]


async def test_a_flight_has_a_maximum_of_calls() -> None:
    server = Server()
    asked = await ask(server.joiner(most=2), 1, 2, 3, 4)
    server.open.set()
    await asyncio.gather(*asked)
    assert server.heard == [[1], [2, 3], [4]]


async def test_a_refused_call_fails_alone() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, -3, 4)
    server.open.set()
    assert await asyncio.gather(*asked, return_exceptions=True) == [2, 4, asked[2].exception(), 8]
    assert isinstance(asked[2].exception(), Refused)
    assert server.heard == [[1], [2, -3, 4], [2], [-3], [4]]


async def test_an_unknown_outcome_reaches_all_callers_and_nothing_is_repeated() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 13, 4)
    server.open.set()
    await asyncio.wait(asked)
    assert isinstance(asked[1].exception(), ConnectionError)
    assert isinstance(asked[2].exception(), ConnectionError)
    assert server.heard == [[1], [13, 4]]


async def test_a_cancelled_caller_does_not_stop_the_others() -> None:
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


async def test_a_call_cancelled_before_it_left_is_not_made() -> None:
    server = Server()
    asked = await ask(server.joiner(), 1, 2, 3)
    asked[1].cancel()
    server.open.set()
    await asyncio.wait(asked)
    assert server.heard == [[1], [3]]


async def test_a_joint_call_is_cancelled_when_all_its_callers_are_cancelled() -> None:
    server = Server()
    asked = await ask(server.joiner(flights=2), 1, 2, 3)
    assert server.heard == [[1], [2, 3]]
    for number, leaver in enumerate(asked[1:]):
        assert server.cancelled == 0, f"{number} of 2 have left"
        leaver.cancel()
        for _ in range(5):
            await asyncio.sleep(0)
    assert server.cancelled == 1
    server.open.set()
    assert await asked[0] == 2
