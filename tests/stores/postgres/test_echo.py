"""A listener wakes a second time after the last notification: the commits of the moment after it send none."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from mainspring.stores.postgres.driver import wakeups
from mainspring.stores.postgres.driver.wakeups import ListenerHub, PostgresListener


class Moments(asyncio.Event):
    """Remembers when it was set."""

    def __init__(self) -> None:
        super().__init__()
        self.set_at: list[float] = []

    def set(self) -> None:
        self.set_at.append(asyncio.get_running_loop().time())
        super().set()


async def test_a_notification_while_the_second_wake_up_waits_has_one_of_its_own() -> None:
    """The worker found nothing at the wake-up of the first notification, and the job of the second one was not
    committed yet."""
    loop = asyncio.get_running_loop()
    listener = PostgresListener(cast("ListenerHub", None), ["q"])
    moments = cast("Any", listener)._woken = Moments()
    listener.wake()
    await asyncio.sleep(0.9 * wakeups._ECHO)
    second = loop.time()
    listener.wake()
    for _ in range(1000):
        if listener._echo is None:
            break
        await asyncio.sleep(wakeups._ECHO)
    assert moments.set_at[-1] >= second + wakeups._ECHO
