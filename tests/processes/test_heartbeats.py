"""Beats from a thread and from a helper process, on a real store."""

from __future__ import annotations

import functools
import json
import logging
import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Callable, Iterator

import pytest

from mainspring.client.blocking import run
from mainspring.common.clock import boottime
from mainspring.common.ids import worker_id
from mainspring.errors import SchemaOutdated
from mainspring.jobs.outcomes import Outcome
from mainspring.stores.connect import StoreAddress
from mainspring.worker.config import WorkerSettings
from mainspring.worker.lease import fencing
from mainspring.worker.lease.heartbeat_thread import HeartbeatThread
from mainspring.worker.lease.shared_state import SharedState
from mainspring.worker.records import Beat, Registration, WorkerRow
from mainspring.worker.retry_log import Outage
from tests.plugins.outside import Outside
from tests.processes.fleet import Fleet, alive, kill, until
from tests.timing import patience


@functools.cache
def lease() -> float:
    """Seconds; the same for a whole run of tests."""
    return patience(1.5)


class Kept:
    """A beater with what a worker would give it."""

    def __init__(self, url: str, seconds: float | None = None) -> None:
        us = int((seconds or lease()) * 1e6)
        self.board = SharedState.create(8)
        self.id = worker_id()
        self.lost = threading.Event()
        self.low: list[float] = []
        self.announced: list[str] = []
        self.beater = HeartbeatThread(
            StoreAddress(url=url),
            lambda: Registration(queues=("default",), lease=us, info=b'{"pid": 1}'),
            lambda: self.id,
            WorkerSettings(lease=us),
            self.board,
            on_lost=self.lost.set,
            on_lease_low=lambda: self.low.append(boottime()),
            outage=Outage(logging.getLogger("mainspring.worker")),
            announce=self.announced.append,
        )


@pytest.fixture
def kept(store_url: str, request: pytest.FixtureRequest) -> Iterator[Kept]:
    seconds = getattr(request, "param", None)
    kept = Kept(store_url, None if seconds is None else patience(seconds))
    yield kept
    kept.beater.stop()
    kept.board.close()


def row_of(fleet: Fleet, worker: str) -> WorkerRow | None:
    return next((row for row in fleet.workers() if row.id == worker), None)


def numbers(fleet: Fleet, worker: str) -> Callable[[int], bool]:
    """Whether the worker's beat number has passed one."""
    return lambda above: (row := row_of(fleet, worker)) is not None and row.number > above


class TestHeartbeatThread:
    async def test_the_first_heartbeat_registers_and_later_ones_extend_the_lease(
        self, fleet: Fleet, kept: Kept
    ) -> None:
        kept.beater.start()
        await kept.beater.wait_registered()
        assert kept.beater.registered.is_set()
        assert kept.announced == [kept.id]
        assert 0 < kept.board.lease_end <= boottime() + lease()

    @pytest.mark.parametrize("kept", [6.0], indirect=True, ids=["long lease"])  # no stall of the machine brings it low
    def test_the_thread_keeps_sending_heartbeats(self, fleet: Fleet, kept: Kept) -> None:
        kept.beater.start()
        until(kept.beater.registered.is_set)
        first = kept.board.lease_end
        until(lambda: numbers(fleet, kept.id)(5))
        assert kept.board.lease_end > first
        assert not kept.low
        assert not kept.lost.is_set()

    async def test_a_lost_worker_registers_again_under_a_new_id(self, fleet: Fleet, kept: Kept) -> None:
        kept.beater.start()
        await kept.beater.wait_registered()
        store = await fleet.tasks.app.client.store()
        rescued = False
        while not rescued:
            row = next(row for row in await store.workers() if row.id == kept.id)
            rescued = (await store.rescue(kept.id, row.number, Outcome.LOST)).taken
        kept.beater.wake()
        assert kept.lost.wait(30)
        old, kept.id = kept.id, worker_id()
        kept.beater.wake()
        await kept.beater.wait_registered()
        rows = {row.id: row.lost for row in await store.workers()}
        assert rows == {old: True, kept.id: False}
        assert kept.announced == [old, kept.id]
        await fleet.tasks.app.aclose()

    @pytest.mark.own_server
    def test_an_outage_is_logged_once_and_no_worker_is_lost(
        self, fleet: Fleet, kept: Kept, outside: Outside, caplog: pytest.LogCaptureFixture
    ) -> None:
        """While the lease is low, bodies are ended again and again: a slow reply may start one."""
        kept.beater.start()
        until(kept.beater.registered.is_set)
        with outside.hold():
            until(lambda: fencing.is_over(boottime(), kept.board.lease_end), what="the lease ends")
            until(lambda: len(kept.low) > 1, what="the second call")
        until(lambda: not fencing.is_low(boottime(), kept.board.lease_end, lease()), what="the lease goes on")
        assert sum("has not confirmed a heartbeat" in message for message in caplog.messages) == 1
        assert not kept.lost.is_set()
        assert row_of(fleet, kept.id) is not None

    async def test_a_permanent_error_is_raised_by_wait_registered(
        self, fleet: Fleet, kept: Kept, outside: Outside
    ) -> None:
        await fleet.tasks.app.aopen()
        outside.raise_version(9999)
        kept.beater.start()
        with pytest.raises(SchemaOutdated):
            await kept.beater.wait_registered()
        await fleet.tasks.app.aclose()


HOST = """
    import ctypes, json, os, sys, time
    from mainspring.worker.lease.shared_state import SharedState
    from mainspring.worker.lease.death_lock import DeathLock
    from mainspring.worker.supervise.heartbeat_process import HeartbeatProcess
    from mainspring.worker.supervise.child_pipe import Hello
    from mainspring.stores.connect import StoreAddress
    board = SharedState.create(8)
    helper = HeartbeatProcess(board, DeathLock.create())
    helper.announce(Hello(worker=sys.argv[1], store=StoreAddress(url=sys.argv[2]), lease=1_500_000, grace=1, drain=1))
    print(helper.pid, flush=True)
    if sys.argv[3] == "gil":
        ctypes.PyDLL(None).usleep(600_000_000)
    sys.stdin.read()
    helper.stop()
"""


@pytest.fixture
def host(
    fleet: Fleet, store_url: str, request: pytest.FixtureRequest
) -> Iterator[tuple[subprocess.Popen[str], int, str]]:
    """A program with a helper, the helper's pid, and the worker it beats for."""
    worker = worker_id()
    program = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(HOST), worker, store_url, getattr(request, "param", "wait")],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    pid = int(program.stdout.readline())
    yield program, pid, worker
    for each in (program.pid, pid):
        kill(each, signal.SIGKILL)
    program.communicate()


async def register(fleet: Fleet, worker: str) -> None:
    store = await fleet.tasks.app.client.store()
    await store.beat([Beat(worker, Registration(lease=int(lease() * 1e6), info=json.dumps({"pid": 1}).encode()))])


Host = tuple[subprocess.Popen[str], int, str]


class TestHeartbeatProcess:
    @pytest.mark.row("W2")
    @pytest.mark.parametrize("host", ["gil"], indirect=True)
    def test_the_heartbeat_process_sends_heartbeats_while_its_host_holds_the_gil(
        self, fleet: Fleet, host: Host
    ) -> None:
        _, _, worker = host
        run("register", register(fleet, worker))
        until(lambda: numbers(fleet, worker)(8), what="beats over several leases")
        assert row_of(fleet, worker) is not None

    def test_the_heartbeat_process_sends_no_heartbeats_for_a_stopped_host(self, fleet: Fleet, host: Host) -> None:
        program, _, worker = host
        run("register", register(fleet, worker))
        until(lambda: numbers(fleet, worker)(3))
        kill(program.pid, signal.SIGSTOP)

        def silent() -> bool:
            """The number does not change for a whole lease."""
            row = row_of(fleet, worker)
            assert row is not None
            end = boottime() + lease()
            while boottime() < end:
                if numbers(fleet, worker)(row.number):
                    return False
            return True

        until(silent)
        kill(program.pid, signal.SIGCONT)
        row = row_of(fleet, worker)
        assert row is not None
        until(lambda: numbers(fleet, worker)(row.number), what="beats go on")

    def test_the_heartbeat_process_gives_back_the_jobs_of_a_dead_host_and_ends(self, fleet: Fleet, host: Host) -> None:
        program, pid, worker = host
        run("register", register(fleet, worker))
        until(lambda: numbers(fleet, worker)(2))
        kill(program.pid, signal.SIGKILL)
        program.wait()
        until(lambda: row_of(fleet, worker) is None, what="the worker is retired")
        until(lambda: not alive(pid), what="the helper ends")
        assert row_of(fleet, worker) is None

    def test_the_heartbeat_process_ends_without_a_store_call_after_its_worker(self, fleet: Fleet, host: Host) -> None:
        program, pid, worker = host
        run("register", register(fleet, worker))
        until(lambda: numbers(fleet, worker)(2))
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            os.kill(pid, number)
        program.communicate("")
        assert program.returncode == 0
        assert not alive(pid)
        assert row_of(fleet, worker) is not None, "retiring is the worker's own affair"
