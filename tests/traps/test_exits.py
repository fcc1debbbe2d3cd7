"""The end of a program: an open app holds nothing up and says nothing; signals belong to the host."""

from __future__ import annotations

import signal

import pytest

from tests.traps.conftest import LIMIT, Programs

SHOP = """
    from mainspring import Mainspring

    app = Mainspring(poll="50ms", grace="1s", drain="5s")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    @app.task
    async def aadd(a: int, b: int) -> int:
        return a + b

    @app.task
    def wait(seconds: float) -> str:
        import time
        time.sleep(seconds)
        return "waited"
"""


@pytest.mark.parametrize(
    "use",
    [
        "add.enqueue(1, 2)",
        "add.enqueue(1, 2).info()",
        "asyncio.run(add.aenqueue(1, 2))",
        "app.open()",
        "watch = add.enqueue(1, 2).watch(); next(watch)",
        "app.worker().start()",
        "app.worker().start(); aadd.enqueue(1, 2).result(timeout=60)",
        "app.worker().start(); wait.enqueue(600)",
        "t = app.test(); t.__enter__(); add.enqueue(1, 2); t.drain()",
        "threading.Thread(target=add.enqueue, args=(1, 2)).start()",
        "threading.Thread(target=lambda: add.enqueue(1, 2).info(), daemon=True).start()",
        "atexit.register(add.enqueue, 1, 2)",
        "atexit.register(lambda: add.enqueue(1, 2).info()); app.open()",
        "raise SystemExit(0) if add.enqueue(1, 2).info() else None",
    ],
)
def test_a_program_that_closes_nothing_ends_without_output(programs: Programs, use: str) -> None:
    programs.write(shop=SHOP, main=f"import asyncio, atexit, threading\nfrom shop import *\n{use}\n")
    assert programs.run("main.py") == ""


def test_an_enqueue_at_exit_is_kept(programs: Programs) -> None:
    """By an exit handler, and by a thread that outlives the main thread."""
    code = """
        import atexit, threading
        from shop import add
        atexit.register(add.enqueue, 1, 2)
        go_on = threading.Event()
        def late():
            go_on.wait()
            add.enqueue(3, 4)
        threading.Thread(target=late).start()
        threading.Timer(0.1, go_on.set).start()
    """
    programs.write(shop=SHOP, main=code)
    programs.run("main.py")
    assert programs.run("-c", "import shop; print(shop.app.jobs.count().total)") == "2\n"


def test_jobs_that_an_embedded_worker_held_at_exit_run_elsewhere(programs: Programs) -> None:
    """A host that ends without stopping its worker gives its job back at once and not after the lease."""
    code = """
        import time
        from shop import app, wait
        app.worker(lease="10m").start()
        job = wait.enqueue(600)
        while job.info().state != "running":
            time.sleep(0.01)
        print(job.id)
    """
    programs.write(shop=SHOP, main=code)
    job = programs.run("main.py").strip()
    check = f"""
        import time
        from shop import app, wait
        job = wait.job("{job}")
        while job.info().state == "running":
            time.sleep(0.01)
        print(job.info().state, job.cancel())
    """
    programs.write(check=check)
    assert programs.run("check.py") in ("ready True\n", "retrying True\n")


HOST = """
    import asyncio, os, signal, sys, threading, time
    from shop import add, app, wait

    def told(number, frame):
        print("host heard", signal.Signals(number).name, flush=True)

    signal.signal(signal.SIGTERM, told)
    before = [signal.getsignal(number) for number in range(1, 32)]
    with app.worker():
        assert [signal.getsignal(number) for number in range(1, 32)] == before
        job = wait.enqueue(3)
        while job.info().state != "running":
            time.sleep(0.01)

        def tell_when_waiting(main=threading.get_ident()):
            # Python handles a signal between any two steps, also before a call has begun: here it comes in the wait.
            while not is_waiting(sys._current_frames()[main]):
                time.sleep(0.01)
            print("ready", flush=True)

        def is_waiting(frame):
            return (frame.f_code.co_name, frame.f_back and frame.f_back.f_code.co_name) == ("wait", "run")

        threading.Thread(target=tell_when_waiting, daemon=True).start()
        try:
            print(job.result(timeout=60), flush=True)
            time.sleep(60 if "interrupted" in sys.argv else 0)
        except KeyboardInterrupt:
            print("host was interrupted", flush=True)
    assert [signal.getsignal(number) for number in range(1, 32)] == before
    print("left", job.info().state, flush=True)
"""


def test_a_signal_reaches_the_handler_of_the_host(programs: Programs) -> None:
    """The embedded worker and its job run on."""
    programs.write(shop=SHOP, main=HOST)
    program = programs.start("main.py")
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGTERM)
        out, errors = program.communicate(timeout=LIMIT)
    finally:
        programs.end(program)
    assert (out, errors, program.returncode) == ("host heard SIGTERM\nwaited\nleft succeeded\n", "", 0)


def test_ctrl_c_leaves_the_with_and_lets_the_job_finish(programs: Programs) -> None:
    programs.write(shop=SHOP, main=HOST)
    program = programs.start("main.py", "interrupted")
    try:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        out, errors = program.communicate(timeout=LIMIT)
    finally:
        programs.end(program)
    assert (out, errors, program.returncode) == ("host was interrupted\nleft succeeded\n", "", 0)


def test_a_worker_in_a_host_with_a_loop(programs: Programs) -> None:
    """As in a web server: the loop owns the signals, and the worker is entered and left on the loop."""
    code = """
        import asyncio, os, signal
        from shop import aadd, add, app

        async def main():
            over = asyncio.Event()
            asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, over.set)
            async with app.worker():
                one, other = await add.aenqueue(1, 2), await aadd.aenqueue(3, 4)
                print(await one.aresult(timeout=60), await other.aresult(timeout=60))
                os.kill(os.getpid(), signal.SIGTERM)
                await over.wait()
            print("left")

        asyncio.run(main())
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "3 7\nleft\n"


def test_ctrl_c_in_a_blocking_wait_ends_only_the_wait(programs: Programs) -> None:
    """The program can still use the app."""
    code = """
        import os, signal, threading
        from shop import add, app
        job = add.enqueue(1, 2)
        threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
        try:
            job.result()
        except KeyboardInterrupt:
            print("interrupted")
        with app.worker():
            print(job.result(timeout=60))
    """
    programs.write(shop=SHOP, main=code)
    assert programs.run("main.py") == "interrupted\n3\n"
