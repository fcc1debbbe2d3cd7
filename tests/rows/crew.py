"""Workers in processes of their own, and what their jobs did, for rows about the whole fleet."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

from mainspring import Concurrency, Context, Mainspring
from tests.timing import patience, short_settings

ROOT = Path(__file__).parents[2]
LIMIT = 60.0

T = TypeVar("T")


def until(ask: Callable[[], T], what: str = "") -> T:
    """The first true answer."""
    end = time.monotonic() + patience(LIMIT)
    while not (answer := ask()):
        assert time.monotonic() < end, f"not within {LIMIT:g} s: {what or ask}"
        time.sleep(0.02)
    return answer


class Tasks:
    """The same tasks in every process. ``folder`` is where they leave a trace and wait for a word."""

    def __init__(self, app: Mainspring, folder: Path) -> None:
        self.app = app
        self.folder = folder

        @app.task(name="crew.mark", queue="flow")
        async def mark(n: int) -> None:
            self.write("marks", f"{n} {os.getpid()}")

        @app.task(name="crew.canary", queue="canary")
        async def canary() -> int:
            return os.getpid()

        @app.task(name="crew.tell", queue="canary")
        def tell(ctx: Context) -> None:
            """Tells of its progress, and waits until it was seen."""
            ctx.progress(1, 4, "a quarter", colour="blue")
            self.wait("go_on")

        @app.task(name="crew.send", queue="canary", retries=1, backoff="10ms")
        def send(ctx: Context, count: int, fail_at: int = 0) -> int:
            """Sends numbers; its first attempt fails after ``fail_at`` of them, once they were seen."""
            for n in range(1, count + 1):
                ctx.send({"n": n, "pid": os.getpid()})
                if n == fail_at and ctx.attempt == 1:
                    self.wait("go_on")
                    raise ValueError("in the middle")
            return count

        @app.task(name="crew.crash", queue="canary", crashes=1)
        def crash(order: int) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        @app.task(name="crew.once", queue="canary", ack="early")
        def once() -> None:
            self.write("began", str(os.getpid()))
            os.kill(os.getpid(), signal.SIGKILL)

        @app.task(name="crew.held", queue="canary", limit=Concurrency(1))
        def held() -> None:
            self.wait("go_on")

        @app.task(name="crew.guarded", queue="canary", crashes=5, breaker={"failures": 1, "open_for": "1h"})
        def guarded() -> None:
            os.kill(os.getpid(), signal.SIGKILL)

        @app.task(name="crew.stick", queue="flow", retries=0)
        def stick() -> None:
            """Says that it runs, and waits for a word."""
            self.write("sticks", str(os.getpid()))
            self.wait("go_on")

        self.held, self.guarded, self.stick = held, guarded, stick
        self.mark, self.canary, self.tell, self.send, self.crash = mark, canary, tell, send, crash

    def write(self, name: str, line: str) -> None:
        with (self.folder / name).open("a") as file:
            file.write(line + "\n")

    def marks(self) -> list[int]:
        """The numbers that ran, in order."""
        path = self.folder / "marks"
        return [int(line.split()[0]) for line in path.read_text().splitlines()] if path.exists() else []

    def say(self, name: str) -> None:
        (self.folder / name).touch()

    def wait(self, name: str) -> None:
        until((self.folder / name).exists, f"somebody says {name}")


class Crew:
    """Starts and ends worker processes."""

    def __init__(self, url: str, folder: Path) -> None:
        self._url = url
        self._folder = folder
        self._started: list[subprocess.Popen[str]] = []

    def start(self, version: str = "") -> subprocess.Popen[str]:
        """A process with one worker, which claims when this returns."""
        popen = subprocess.Popen(
            [sys.executable, "-m", "tests.rows.crew", self._url, str(self._folder), version],
            cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        self._started.append(popen)
        assert popen.stdout is not None
        assert popen.stdout.readline() == "up\n"
        return popen

    def stop(self, popen: subprocess.Popen[str]) -> None:
        """Drain it; wait for its end."""
        assert popen.stdin is not None
        popen.stdin.close()
        assert popen.wait(LIMIT) == 0

    def end(self) -> None:
        for popen in self._started:
            if popen.poll() is None:
                popen.kill()
            popen.wait(LIMIT)
            for pipe in (popen.stdin, popen.stdout):
                if pipe is not None:
                    pipe.close()


@contextmanager
def crew_of(url: str, folder: Path) -> Iterator[Crew]:
    crew = Crew(url, folder)
    try:
        yield crew
    finally:
        crew.end()


def main(url: str, folder: str, version: str) -> None:
    app = Mainspring(url, version=version or None, **short_settings())
    Tasks(app, Path(folder))
    with app.worker():
        print("up", flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    main(*sys.argv[1:])
