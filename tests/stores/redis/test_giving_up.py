"""Connections that are left: by callers who gave up, by servers that were demoted, by loops that were closed."""

from __future__ import annotations

import asyncio
import gc
import weakref

import pytest

from mainspring import Mainspring
from mainspring.stores.redis import address, wire
from mainspring.stores.redis.connection import _has_moved
from mainspring.stores.redis.resp import ServerError, pack
from mainspring.testing import servers


async def test_a_second_who_gives_up_leaves_the_connection(own_server: servers.Valkey) -> None:
    """What they ask again would stand behind replies that nobody reads any more."""
    link = await wire.connect(address.parse(own_server.url))
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
def test_a_demoted_server_is_known_by_what_it_says(text: str, moved: bool) -> None:
    assert _has_moved(ServerError(text)) is moved


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_a_loop_that_was_closed_in_a_hurry_is_not_kept(redis_url: str) -> None:
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
