"""A profiler, a debugger or coverage in a process whose worker has ended bodies at their time limits."""

from __future__ import annotations

import pytest

from tests.traps.conftest import Programs

CODE = """
    import sys, threading, time
    from mainspring import Mainspring

    app = Mainspring("sqlite:///jobs.db", name="shop", poll="50ms")

    @app.task(timeout="100ms", retries=0)
    def endless() -> None:
        while True:
            time.sleep(0.001)

    def call(done: threading.Event) -> None:
        sys.{hook}(lambda *_: None)
        done.set()
        sys.{hook}(None)

    with app.worker():
        print(endless.enqueue().join(timeout=60).reason)
        done = threading.Event()
        threading.Thread(target=call, args=[done], daemon=True).start()
        print(done.wait(30))
"""


@pytest.mark.parametrize("hook", ["setprofile", "settrace"])
def test_a_profiled_thread_runs_after_a_time_limit_ended_a_body(programs: Programs, hook: str) -> None:
    """An exception that was withdrawn left a flag set. In Python 3.11 a profiled function never began with it."""
    programs.write(app=CODE.format(hook=hook))
    assert programs.run("app.py", quiet=False).splitlines()[:2] == ["timed_out", "True"]
