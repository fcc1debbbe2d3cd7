"""The store cannot be reached: that is neither "held" nor "free"; a holder that is cut off knows what it has lost."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from mainspring import Mainspring
from mainspring.errors import LockLost, StoreUnavailable
from mainspring.testing import chaos
from tests.faults.test_servers import frozen
from tests.processes.fleet import until
from tests.soak.arena import Arena
from tests.timing import patience

OVER_A_WIRE = pytest.mark.stores("postgres", "redis")


@pytest.fixture
def app(wire: chaos.Proxy) -> Iterator[Mainspring]:
    app = Mainspring(wire.url)
    yield app
    app.close()


@pytest.fixture
def other(ground: Arena) -> Iterator[Mainspring]:
    """It goes straight to the store."""
    app = Mainspring(ground.url)
    yield app
    app.close()


@OVER_A_WIRE
@pytest.mark.row("L1")
@pytest.mark.parametrize("fault", [chaos.Reset(), chaos.Cut()], ids=repr)
@pytest.mark.parametrize("held", [False, True])
def test_a_lock_during_an_outage_raises_store_unavailable(
    app: Mainspring, other: Mainspring, wire: chaos.Proxy, fault: chaos.Fault, held: bool
) -> None:
    """Whether or not the lock is held, and also for callers that would wait or skip."""
    assert not app.lock("nightly").is_locked()
    if held:
        other.lock("nightly").acquire()
    with wire.suffering(fault):
        for lock in (app.lock("nightly"), app.lock("nightly", on_busy="skip"), app.lock("nightly", wait="1h")):
            for verb in (lock.acquire, lock.is_locked, lock.remaining, lock.__enter__, app.locks.list):
                with pytest.raises(StoreUnavailable):
                    verb()
    assert app.lock("nightly").is_locked() is held


@OVER_A_WIRE
@pytest.mark.row("L1")
def test_a_lost_reply_leaves_no_lock_behind(app: Mainspring, other: Mainspring, wire: chaos.Proxy) -> None:
    """The lock was taken and the caller does not know: it is released long before its ttl is over."""
    with app.lock("nightly"):  # the server knows its script: the next request is all there is
        pass
    drop = chaos.DropReply()
    with wire.suffering(drop), pytest.raises(StoreUnavailable):
        app.lock("nightly", ttl="1h").acquire()
    assert drop.dropped == 1
    until(lambda: not other.lock("nightly").is_locked(), what="it is given back")


@OVER_A_WIRE
@pytest.mark.row("L1", "L3")
def test_extend_during_an_outage_fails(app: Mainspring, wire: chaos.Proxy) -> None:
    with app.lock("nightly", ttl="1h") as lock:
        with wire.suffering(chaos.Reset()):
            with pytest.raises(StoreUnavailable):
                lock.extend("2h")
            assert not lock.lost, "it is still held, for as long as the store has confirmed"
        lock.extend("2h")


@OVER_A_WIRE
@pytest.mark.row("L1")
def test_a_block_that_cannot_release_its_lock_ends_without_an_error(
    app: Mainspring, wire: chaos.Proxy, caplog: pytest.LogCaptureFixture
) -> None:
    with app.lock("nightly", ttl="1h"):
        wire.set(chaos.Reset())
    assert "could not be released" in caplog.text


@OVER_A_WIRE
@pytest.mark.row("L3")
@pytest.mark.parametrize("fault", [chaos.Stall(), chaos.Reset(), chaos.HalfOpen()], ids=repr)
def test_a_holder_that_is_cut_off_loses_its_lock_by_its_own_clock(
    app: Mainspring, other: Mainspring, wire: chaos.Proxy, fault: chaos.Fault
) -> None:
    """It needs no reply of the store to know, and the store admits no other holder before that."""
    lock = app.lock("nightly", ttl=patience(1))
    lock.acquire()
    with wire.suffering(fault), other.lock("nightly", wait="60s") as next_one:
        assert lock.lost, "it knew before the other was let in"
        assert next_one.token > lock.token
        with pytest.raises(LockLost):
            lock.check()
    with pytest.raises(LockLost):
        lock.release()


@OVER_A_WIRE
@pytest.mark.row("L3")
async def test_an_async_block_that_is_cut_off_is_cancelled(
    app: Mainspring, other: Mainspring, wire: chaos.Proxy
) -> None:
    @app.lock("nightly", ttl=patience(1))
    async def work() -> None:
        wire.set(chaos.Stall())
        await asyncio.Event().wait()  # for ever, unless it is cancelled

    with pytest.raises(LockLost):
        await work()
    wire.set(chaos.Fault())
    await app.aclose()


@OVER_A_WIRE
@pytest.mark.row("L2")
def test_a_short_outage_loses_no_lock(app: Mainspring, other: Mainspring, wire: chaos.Proxy) -> None:
    lock = app.lock("nightly", ttl=patience(3))
    with lock:
        token, before = lock.token, app.locks.list()[0].until
        with wire.suffering(chaos.Reset()):
            pass
        until(lambda: other.locks.list()[0].until > before, what="it is renewed again")
        assert (lock.lost, lock.token) == (False, token)


@OVER_A_WIRE
@pytest.mark.row("L3")
def test_tokens_grow_over_restarts_of_the_server(ground: Arena, other: Mainspring) -> None:
    assert ground.server is not None
    tokens = []
    for _ in range(3):
        with other.lock("nightly") as lock:
            tokens.append(lock.token)
        ground.server.kill()
        ground.server.start()
        other.close()
    with other.lock("nightly") as lock:
        tokens.append(lock.token)
    assert tokens == sorted(set(tokens))


@pytest.mark.row("L1", "L3")
def test_a_frozen_store_is_store_unavailable_and_a_holder_loses_its_lock(ground: Arena, other: Mainspring) -> None:
    """The error of ``acquire`` names the store and no holder. A holder loses its lock by its own clock."""
    held, free = other.lock("held", ttl=patience(1)), other.lock("free")
    with held:
        with frozen(ground):
            with pytest.raises(StoreUnavailable):
                free.acquire()
            until(lambda: held.lost, what="its own clock says so")
        with pytest.raises(LockLost):
            held.release()
    assert free.acquire(wait="60s"), "what may have arrived is given back"
    free.release()
    with held:
        assert not held.lost
