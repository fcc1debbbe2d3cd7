"""L2, L3: a lock is kept as long as its holder lives, its token grows, and a holder that loses it is informed."""

from __future__ import annotations

import asyncio
import functools
import os
import threading
import time
from contextlib import suppress

import pytest

from mainspring import Mainspring
from mainspring.errors import LockLost
from mainspring.locks.lock import Lock
from tests.rows.crew import LIMIT, until
from tests.rows.locked import atake_away, take_away
from tests.timing import patience


@functools.cache
def ttl() -> float:
    """Seconds that a lock outlives a renewal: long enough that only a test takes the lock away."""
    return patience(2)


def live_on(lock: Lock, other: Mainspring, times: int) -> None:
    """Wait for this many ttls. No other process gets the lock meanwhile."""
    end = time.monotonic() + times * ttl()
    while time.monotonic() < end:
        assert not other.lock(lock.name, on_busy="skip").acquire()
        lock.check()
        time.sleep(ttl() / 5)


@pytest.mark.row("L2")
class TestRenewal:
    def test_a_lock_is_renewed_for_ten_ttls(self, app: Mainspring, other: Mainspring) -> None:
        with app.lock("nightly", ttl=ttl()) as lock:
            token = lock.token
            live_on(lock, other, 10)
            assert (lock.lost, lock.token) == (False, token)
        with other.lock("nightly") as next_one:
            assert next_one.token > token

    async def test_a_lock_is_renewed_while_its_holder_blocks_the_loop(self, app: Mainspring, other: Mainspring) -> None:
        async with app.lock("nightly", ttl=ttl()) as lock:
            thread = threading.Thread(target=live_on, args=(lock, other, 3))
            thread.start()
            thread.join(LIMIT)  # that is the blocking
            assert not lock.lost
        await app.aclose()

    def test_a_lock_is_renewed_after_acquire(self, app: Mainspring, other: Mainspring) -> None:
        lock = app.lock("nightly", ttl=ttl())
        lock.acquire()
        live_on(lock, other, 3)
        lock.release()
        assert not other.lock("nightly").is_locked()

    def test_an_extended_ttl_is_renewed_too(self, app: Mainspring, other: Mainspring) -> None:
        with app.lock("nightly", ttl=ttl()) as lock:
            lock.extend(2 * ttl())
            live_on(lock, other, 4)


@pytest.mark.row("L3")
class TestNumbers:
    def test_tokens_grow_with_each_holder(self, app: Mainspring, other: Mainspring) -> None:
        tokens = []
        for n in range(6):
            with (app, other)[n % 2].lock("nightly") as lock:
                tokens.append(lock.token)
        assert tokens == sorted(set(tokens))

    def test_the_token_can_be_read_after_the_release(self, app: Mainspring) -> None:
        lock = app.lock("nightly")
        with lock:
            token = lock.token
        assert lock.token == token

    def test_a_resource_that_compares_tokens_refuses_a_late_writer(self, app: Mainspring, other: Mainspring) -> None:
        """A holder that lost the lock can write after the next holder. The token lets the resource refuse such a
        write.
        """
        written: list[tuple[int, str]] = []

        def write(token: int, text: str) -> bool:
            if written and written[-1][0] > token:
                return False
            written.append((token, text))
            return True

        mine, theirs = app.lock("nightly"), other.lock("nightly")
        mine.acquire()
        assert write(mine.token, "mine")
        take_away(other)
        theirs.acquire()
        assert write(theirs.token, "theirs")
        assert not write(mine.token, "mine, late")
        theirs.release()


@pytest.mark.row("L3")
class TestSyncLoss:
    def lost(self, app: Mainspring, other: Mainspring) -> Lock:
        lock = app.lock("nightly", ttl=ttl())
        lock.acquire()
        assert not lock.lost
        take_away(other)
        until(lambda: lock.lost, "it learns of its loss")
        return lock

    @pytest.mark.parametrize("verb", ["check", "release", "extend"])
    def test_the_next_call_after_the_loss_raises_lock_lost(self, app: Mainspring, other: Mainspring, verb: str) -> None:
        lock = self.lost(app, other)
        with pytest.raises(LockLost) as caught:
            lock.extend("1s") if verb == "extend" else getattr(lock, verb)()
        assert (caught.value.lock, caught.value.token) == ("lock 'nightly'", lock.token)
        assert lock.lost

    def test_extend_finds_the_loss_before_a_renewal_does(self, app: Mainspring, other: Mainspring) -> None:
        lock = app.lock("nightly", ttl="1h")
        lock.acquire()
        take_away(other)
        assert not lock.lost
        with pytest.raises(LockLost):
            lock.extend("1h")
        assert lock.lost

    def test_the_end_of_the_block_raises_lock_lost(self, app: Mainspring, other: Mainspring) -> None:
        with pytest.raises(LockLost), app.lock("nightly", ttl="1h") as lock:
            take_away(other)
        assert lock.lost
        with lock:
            assert not lock.lost, "it was taken again"

    def test_an_exception_of_the_block_replaces_lock_lost(self, app: Mainspring, other: Mainspring) -> None:
        def fail() -> None:
            take_away(other)
            raise ValueError("no paper")

        with pytest.raises(ValueError, match="no paper") as caught:
            app.lock("nightly", ttl="1h")(fail)()
        assert "was lost" in caught.value.__notes__[0]

    def test_a_forked_child_does_not_hold_the_lock(self, app: Mainspring, other: Mainspring) -> None:
        """The child releases nothing."""
        with app.lock("nightly") as lock:
            child = os.fork()
            if child == 0:
                code = 9
                try:
                    assert lock.lost
                    assert not lock
                    lock.check()
                except LockLost:
                    try:
                        lock.release()
                    except LockLost:
                        code = 0
                finally:
                    os._exit(code)
            assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
            assert not lock.lost
            assert other.lock("nightly").is_locked()


@pytest.mark.row("L3")
class TestAsyncLoss:
    async def test_a_loss_cancels_the_async_block(self, app: Mainspring, other: Mainspring) -> None:
        cancelled = False
        lock = app.lock("nightly", ttl=ttl())

        async def work() -> None:
            nonlocal cancelled
            async with lock:
                await atake_away(other)
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    cancelled = True
                    raise

        with pytest.raises(LockLost) as caught:
            await work()
        assert cancelled
        assert lock.lost
        assert caught.value.token == lock.token
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0, "nothing of it is left"
        await asyncio.sleep(0)
        await close(app, other)

    async def test_a_loss_cancels_a_decorated_async_function(self, app: Mainspring, other: Mainspring) -> None:
        @app.lock("nightly", ttl=ttl())
        async def work() -> None:
            await atake_away(other)
            await asyncio.Event().wait()

        with pytest.raises(LockLost):
            await work()
        await close(app, other)

    async def test_a_cancellation_from_outside_stays_a_cancellation(self, app: Mainspring, other: Mainspring) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with app.lock("nightly", ttl=ttl()):
                inside.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await inside.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not await other.lock("nightly").ais_locked()
        await close(app, other)

    async def test_a_cancellation_from_outside_during_the_loss_stays_a_cancellation(
        self, app: Mainspring, other: Mainspring
    ) -> None:
        inside, struck = asyncio.Event(), asyncio.Event()

        async def work() -> None:
            async with app.lock("nightly", ttl=ttl()):
                inside.set()
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError:
                    struck.set()
                    await asyncio.Event().wait()  # and here it is cancelled from outside

        task = asyncio.create_task(work())
        await inside.wait()
        await atake_away(other)
        await struck.wait()
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await task
        assert "was lost" in caught.value.__notes__[0]
        await close(app, other)

    async def test_an_exception_of_the_cancelled_block_replaces_lock_lost(
        self, app: Mainspring, other: Mainspring
    ) -> None:
        @app.lock("nightly", ttl=ttl())
        async def work() -> None:
            await atake_away(other)
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                raise ValueError("tidied up") from None

        with pytest.raises(ValueError, match="tidied up") as caught:
            await work()
        assert "was lost" in caught.value.__notes__[0]
        await close(app, other)

    async def test_a_block_that_ignores_the_cancellation_gets_lock_lost_at_its_end(
        self, app: Mainspring, other: Mainspring
    ) -> None:
        @app.lock("nightly", ttl=ttl())
        async def work() -> None:
            await atake_away(other)
            with suppress(asyncio.CancelledError):
                await asyncio.Event().wait()

        with pytest.raises(LockLost):
            await work()
        await close(app, other)

    async def test_a_loss_cancels_only_the_block(self, app: Mainspring, other: Mainspring) -> None:
        """Another task of the same loop and the code after the block run on."""
        beside = asyncio.create_task(asyncio.sleep(0.01, "ran"))

        @app.lock("nightly", ttl=ttl())
        async def work() -> None:
            await atake_away(other)
            await asyncio.Event().wait()

        with pytest.raises(LockLost):
            await work()
        assert await beside == "ran"
        async with asyncio.timeout(LIMIT), app.lock("nightly"):
            await asyncio.sleep(0)
        await close(app, other)

    async def test_a_loss_without_a_block_cancels_nothing(self, app: Mainspring, other: Mainspring) -> None:
        lock = app.lock("nightly", ttl=ttl())
        await lock.aacquire()
        await atake_away(other)
        while not lock.lost:  # noqa: ASYNC110  # no task is told
            await asyncio.sleep(0.02)
        with pytest.raises(LockLost):
            await lock.arelease()
        await close(app, other)


async def close(*apps: Mainspring) -> None:
    for app in apps:
        await app.aclose()
