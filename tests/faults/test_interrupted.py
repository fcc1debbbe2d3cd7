"""An exception that interrupts a call of the store reaches the caller as it is, and the app stays usable."""

from __future__ import annotations

import asyncio
import subprocess
import sys

import pytest

from mainspring import Mainspring
from mainspring.errors import SoftTimeout
from tests.timing import milliseconds, patience, short_settings

STRUCK = 12
"""The number of attempts. The time limit ends each attempt at another place."""


@pytest.mark.row("E5")
@pytest.mark.parametrize("colour", ["async", "thread"])
def test_a_time_limit_that_strikes_inside_enqueue_ends_the_body(store_url: str, colour: str) -> None:
    """A ``SoftTimeout`` is a ``TimeoutError``: it must not be taken for an error of the store, and be repeated."""
    app = Mainspring(store_url, **short_settings())

    @app.task(name="interrupted.nothing", queue="unserved")
    def nothing() -> None: ...

    def produce() -> str:
        try:
            while True:
                nothing.enqueue()
        except SoftTimeout:
            return "stopped"

    async def aproduce() -> str:
        try:
            while True:
                await nothing.aenqueue()
                await asyncio.sleep(0)
        except SoftTimeout:
            return "stopped"

    options = {"name": "interrupted.produce", "soft_timeout": "200ms", "timeout": milliseconds(20), "retries": 0}
    body = produce if colour == "thread" else aproduce
    task = app.task(**options)(body)  # type: ignore[call-overload]  # a dict of options has no type for each of them
    with app.worker(queues="default"):
        jobs = app.enqueue_many(task.s() for _ in range(STRUCK))
        assert [job.result(timeout=patience(30)) for job in jobs] == ["stopped"] * STRUCK
    app.close()


STRIKES = 100


@pytest.mark.row("E5")
@pytest.mark.parametrize("kind", ["own", "timeout"])
def test_an_app_stays_usable_after_a_signal_handler_raised_inside_its_calls(store_url: str, kind: str) -> None:
    """The error reaches the program as it is, the next calls return their own replies, and the process does not crash.

    ``timeout``: a ``TimeoutError``, which an engine could take for an error of its connection.
    """
    app = Mainspring(store_url)
    app.jobs.count()
    app.close()
    for seed in range(2):
        command = [sys.executable, "-m", "tests.faults.interrupting", store_url, str(seed), kind, str(STRIKES)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(120))
        assert done.returncode == 0, done.stderr


PACK = """
import faulthandler, signal
from mainspring.stores.redis.driver.resp import pack

class Stop(Exception): ...

def stop(*_):
    raise Stop

faulthandler.enable()
signal.signal(signal.SIGALRM, stop)
for n in range(20):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.002)
        while True:
            pack(("DEL", *range(100_000)))
    except Stop:
        pass
print("usable:", pack(("PING", 1)))
"""


def test_a_signal_handler_that_raises_while_a_command_is_packed_crashes_no_process() -> None:
    """hiredis crashes if ``repr()`` of a number fails, so it gets no numbers."""
    done = subprocess.run([sys.executable, "-c", PACK], capture_output=True, text=True, check=False, timeout=120)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("usable: ")
