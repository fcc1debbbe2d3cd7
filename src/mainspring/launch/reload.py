"""Workers that start anew when their code changes: ``mainspring dev``.

Three kinds of process. The *reloader* imports no user code; it watches files. A *look* imports the app,
tells which files that read, and ends: so an error in the code is found before anything is stopped. The *server*
is a supervisor with its workers, as ``mainspring worker`` has it. On a change there is a look first: if the code
can be imported, the server is told to drain (5 s unless told otherwise) and a new one is started; if it cannot,
the error is shown and the old server goes on with the old code.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import msgspec

from mainspring.errors import ConfigError
from mainspring.launch.watch_files import Seen, app_files, differ, names, snapshot

POLL = 0.5
"""Seconds between two looks at the files."""
LONGEST = 60.0
"""Seconds that a server may take to end before it is killed."""


class Assignment(msgspec.Struct, frozen=True):
    """What the reloader tells its children."""

    target: str
    folder: str
    options: dict[str, Any] = {}
    log_level: str | None = None
    url: str | None = None
    """The store that the app must use, if it is not the app that decides."""


class WatchedApp(msgspec.Struct, frozen=True):
    """What a look found: the files of the app, and what stood in the way of importing it."""

    files: list[str]
    error: str = ""


class Reloader:
    """Serves one app until it is told to stop; runs in the main thread."""

    def __init__(self, given: Assignment, say: Callable[[str], None]) -> None:
        self._given = given
        self._say = say
        self._stops = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._files: set[str] = set()
        self._told_end = False

    def run(self) -> int:
        """Returns the exit code of the last server."""
        with self._signals():
            self._start()
            seen = snapshot(self._files)
            while not self._stops:
                time.sleep(POLL)
                if changed := differ(seen, snapshot(self._files)):
                    self._settle()
                    seen = snapshot(self._files)
                    self._say(f"{', '.join(changed)} changed")
                    self._start()
                    seen = {**snapshot(self._files), **seen}
                self._notice_end()
            return self._end()

    def _start(self) -> None:
        """Look, and if the code can be imported let a new server take the place of the old one."""
        looked = look(self._given, lambda: bool(self._stops))
        self._files |= set(looked.files)
        if self._stops:
            return
        if looked.error:
            keeps = "the old code goes on" if self._serving else "nothing runs until it is mended"
            self._say(f"{self._given.target} cannot be imported; {keeps}\n{looked.error.rstrip()}")
            return
        self._end()
        self._say(f"serving {self._given.target}, watching {', '.join(names(self._files))}")
        self._server = _child("serve", self._given, stdin=subprocess.PIPE)
        self._told_end = False
        if self._stops:
            self._server.terminate()

    @property
    def _serving(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def _settle(self) -> None:
        """Until nothing has changed for a moment: an editor may write several files."""
        before: Seen = {}
        while before != (before := snapshot(self._files)) and not self._stops:
            time.sleep(POLL / 5)

    def _notice_end(self) -> None:
        if self._server is not None and not self._serving and not self._told_end and not self._stops:
            self._told_end = True
            self._say(f"the workers ended with exit code {self._server.returncode}; waiting for a change")

    def _end(self) -> int:
        """End the server; its exit code."""
        if self._server is None:
            return 0
        if self._serving and not self._stops:
            self._server.terminate()
        try:
            code = self._server.wait(LONGEST)
        except subprocess.TimeoutExpired:
            self._server.kill()
            code = self._server.wait()
        if self._server.stdin is not None:
            self._server.stdin.close()
        return code

    @contextmanager
    def _signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - as signal handlers are called
        """The first drains, a second is fast: the server counts them."""
        self._stops += 1
        if self._serving:
            assert self._server is not None
            self._server.terminate()


# ---- children --------------------------------------------------------------------------------------


def look(given: Assignment, stopped: Callable[[], bool]) -> WatchedApp:
    """Import the app in a process of its own and see which files that read. Given up when ``stopped``."""
    reading, writing = os.pipe()
    child = _child("look", given, report=writing, stdin=subprocess.PIPE)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        while not select.select([pipe], [], [], POLL / 5)[0]:
            if stopped():
                os.killpg(child.pid, signal.SIGKILL)  # an import has nothing to finish
                break
        told = pipe.read()
    code = child.wait()
    assert child.stdin is not None
    child.stdin.close()
    return (
        msgspec.json.decode(told, type=WatchedApp)
        if told
        else WatchedApp([], f"the import ended with exit code {code}")
    )


def _child(
    verb: str, given: Assignment, *, report: int | None = None, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """A process out of reach of the terminal's signals: the reloader decides when it ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "mainspring.launch.reload", verb, msgspec.json.encode(given).decode(), str(report or 0)],
        start_new_session=True, stdin=stdin or subprocess.DEVNULL, pass_fds=() if report is None else (report,),
        env={**os.environ, "MAINSPRING_URL": given.url} if given.url else None,
    )  # fmt: skip


def _look(given: Assignment, report: int) -> int:
    from mainspring.launch.child import explain, load_target
    from mainspring.worker.supervise import process_tree

    os.set_inheritable(report, False)
    parent = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with_parent, args=(parent, signal.SIGKILL), daemon=True).start()
    process_tree.die_with_parent(os.getppid())  # also when the import holds the interpreter
    sys.path.insert(0, given.folder)
    try:
        app = load_target(given.target)
        app.parts(**given.options)
        if given.url:
            _prepare_store(app, given.url)
        looked = WatchedApp(app_files())
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever user code raises while it is imported
        looked = WatchedApp(app_files(error), explain(error.with_traceback(_after_ours(error.__traceback__))))
    with os.fdopen(report, "wb") as pipe:
        pipe.write(msgspec.json.encode(looked))
    return 0


def _prepare_store(app: Any, url: str) -> None:
    """The app must use this store and no other; what is missing in it is made."""
    from mainspring.client import blocking

    if app.settings.url != url:
        raise ConfigError(
            f"the app names a store of its own, {app.settings.shown_url}",
            hint="Leave it out: Mainspring() takes the store from the settings, and here from --engine.",
        )
    blocking.run("app.client.migrate", app.client.migrate())


def _after_ours(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _serve(given: Assignment) -> int:
    from mainspring.launch.run import run_target

    threading.Thread(target=_end_with_parent, args=(0, signal.SIGTERM), daemon=True).start()
    return run_target(given.target, given.options, log_level=given.log_level, path=[given.folder])


def _end_with_parent(pipe: int, number: signal.Signals) -> None:
    """What was standard input ends when the reloader does, however it does."""
    os.read(pipe, 1)
    os.kill(os.getpid(), number)


def main(arguments: list[str]) -> int:
    """The entry of a child."""
    verb, told, report = arguments
    given = msgspec.json.decode(told, type=Assignment)
    return _look(given, int(report)) if verb == "look" else _serve(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
