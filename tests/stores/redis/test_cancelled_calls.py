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

BLOCKED = pack(("BLPOP", "nothing", 30))


async def test_cancelled_calls_close_a_connection_that_stays_silent(
    own_server: servers.Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A repeated call would wait behind replies that do not come. The callers may be short of patience, each alone."""
    link = await loop_connection.connect(address.parse(own_server.url))
    for _ in range(3):
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(link.call(BLOCKED), 0.01)
        assert not link.lost
    monkeypatch.setattr(loop_connection, "SILENCE", 0.02)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.call(BLOCKED), 0.01)
    assert link.lost


async def test_a_retired_connection_serves_the_callers_that_wait(
    own_server: servers.Valkey, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed when the last of them has its reply."""
    monkeypatch.setattr(loop_connection, "SILENCE", 0.0)
    place = address.parse(own_server.url)
    link, other = await loop_connection.connect(place), await loop_connection.connect(place)
    waiting = asyncio.ensure_future(link.call(BLOCKED))
    behind = asyncio.ensure_future(link.call(pack(("PING",))))
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(link.call(pack(("PING",))), 0.05)
    assert (link.retired, link.lost) == (True, False)
    await other.call(pack(("RPUSH", "nothing", "word")))
    assert await waiting == [b"nothing", b"word"]
    assert await behind == b"PONG"
    assert link.lost
    other.abort()


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
