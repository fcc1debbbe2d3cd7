"""Connections after cancelled calls, demoted servers and closed event loops."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from mainspring import Mainspring
from mainspring.stores.redis.driver import address, loop_connection
from mainspring.stores.redis.driver.client import is_not_primary
from mainspring.stores.redis.driver.resp import ServerError, pack
from mainspring.testing import servers


async def test_a_second_cancelled_call_closes_the_connection(own_server: servers.Valkey) -> None:
    """A repeated call would wait behind replies that are dropped."""
    link = await loop_connection.connect(address.parse(own_server.url))
    for lost in (False, True):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.call(pack(("BLPOP", "nothing", 30))), 0.05)
        assert link.lost is lost


@pytest.mark.parametrize(
    ("text", "moved"),
    [
        ("READONLY You can't write against a read only replica.", True),
        ("ERR Error running script (call to f_1): @user_script:3: -READONLY You can't write against a replica", True),
        ("MASTERDOWN Link with MASTER is down", True),
        ("ERR no such key", False),
    ],
)
def test_a_demoted_server_is_recognised_by_its_error(text: str, moved: bool) -> None:
    assert is_not_primary(ServerError(text)) is moved


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_closed_loop_is_not_kept(redis_url: str) -> None:
    """Without asyncio.run(), as old test suites do it."""
    app = Mainspring(redis_url)

    @app.task(name="work")
    async def work() -> None: ...

    loops = []
    for _ in range(3):
        loop = asyncio.new_event_loop()
        loop.run_until_complete(work.aenqueue())
        loop.close()
        loops.append(weakref.ref(loop))
        del loop
        gc.collect()
    assert [ref() is not None for ref in loops] == [False, False, True]

    async def last() -> None:
        await work.aenqueue()
        await app.aclose()

    asyncio.run(last())
    gc.collect()
    assert not any(ref() for ref in loops)
