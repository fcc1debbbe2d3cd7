"""Workers that restart when their code changes: ``mainspring dev``.

There are three kinds of processes. The *reloader* imports no user code; it watches files. A *check* imports the app,
reports which files the import read, and ends: so an error in the code is found before a worker is stopped. The *server*
is a supervisor with its workers, like ``mainspring worker``. After a change, a check runs first. If the code can be
imported, the server is drained (for 5 s by default) and a new server is started. If not, the error is shown and the old
server continues with the old code.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec

from mainspring.errors import ConfigError
from mainspring.settings.project import PROJECT_FILES, project_root

POLL = 0.5
"""Seconds between two checks of the files."""
END_LIMIT = 60.0
"""Seconds that a server may take to end before it is killed."""

Snapshot = Mapping[str, tuple[int, int]]
"""The modification time and the size of each file."""


class Assignment(msgspec.Struct, frozen=True):
    """What the reloader passes to its child processes."""

    target: str
    folder: str
    options: dict[str, Any] = {}
    log: dict[str, str] = {}
    """The log settings of the command line; see ``run_target``."""
    url: str | None = None
    """The store that the app must use; None if the app decides."""


class WatchedApp(msgspec.Struct, frozen=True):
    """The result of a check: the files of the app, and the error of the import if it failed."""

    files: list[str]
    error: str = ""
    ignore: str = ""
    """The line that the project's ``.gitignore`` lacks."""


class Reloader:
    """Serves one app until a stop signal comes. Runs in the main thread. ``say`` shows a message to the user."""

    def __init__(self, given: Assignment, say: Callable[[str], None]) -> None:
        self._given = given
        self._say = say
        self._stops = 0
        self._server: subprocess.Popen[bytes] | None = None
        self._files: set[str] = set()
        self._end_reported = False
        self._ignore_reported = False

    def run(self) -> int:
        """Returns the exit code of the last server."""
        with self._handle_signals():
            self._start()
            before = take_snapshot(self._files)
            while not self._stops:
                time.sleep(POLL)
                if changed := find_changes(before, take_snapshot(self._files)):
                    self._wait_for_editor()
                    before = take_snapshot(self._files)
                    self._say(f"{', '.join(changed)} changed")
                    self._start()
                    before = {**take_snapshot(self._files), **before}
                self._report_end()
            return self._end()

    def _start(self) -> None:
        """Check the code. If it can be imported, replace the old server by a new one."""
        checked = check_app(self._given, lambda: bool(self._stops))
        self._files |= set(checked.files)
        if self._stops:
            return
        if checked.error:
            now = "the old code keeps running" if self._is_serving else "nothing runs until the code is fixed"
            self._say(f"{self._given.target} cannot be served; {now}\n{checked.error.rstrip()}")
            return
        self._end()
        if checked.ignore and not self._ignore_reported:
            self._ignore_reported = True
            self._say(f"add this line to .gitignore, for the files of the SQLite store: {checked.ignore}")
        self._say(f"serving {self._given.target}, watching {', '.join(short_names(self._files))}")
        self._server = _start_child("serve", self._given, stdin=subprocess.PIPE)
        self._end_reported = False
        if self._stops:
            self._server.terminate()

    @property
    def _is_serving(self) -> bool:
        return self._server is not None and self._server.poll() is None

    def _wait_for_editor(self) -> None:
        """Wait until no file has changed for a moment: an editor may write several files."""
        before: Snapshot = {}
        while before != (before := take_snapshot(self._files)) and not self._stops:
            time.sleep(POLL / 5)

    def _report_end(self) -> None:
        if self._server is not None and not self._is_serving and not self._end_reported and not self._stops:
            self._end_reported = True
            self._say(f"the workers ended with exit code {self._server.returncode}; waiting for a change")

    def _end(self) -> int:
        """End the server. Returns its exit code."""
        if self._server is None:
            return 0
        if self._is_serving and not self._stops:
            self._server.terminate()
        try:
            code = self._server.wait(END_LIMIT)
        except subprocess.TimeoutExpired:
            self._server.kill()
            code = self._server.wait()
        if self._server.stdin is not None:
            self._server.stdin.close()
        return code

    @contextmanager
    def _handle_signals(self) -> Iterator[None]:
        before = {number: signal.signal(number, self._on_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _on_stop(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002 - the signature of handlers
        """Forward the signal. The server counts: the first signal drains, the second one stops."""
        self._stops += 1
        if self._is_serving:
            assert self._server is not None
            self._server.terminate()


# ---- files -----------------------------------------------------------------------------------------


def take_snapshot(files: Iterable[str]) -> Snapshot:
    """The modification time and the size of each file. A file that does not exist is left out."""
    found = {}
    for file in files:
        try:
            stat = os.stat(file)  # noqa: PTH116 - called for every file, twice a second
        except OSError:
            continue
        found[file] = (stat.st_mtime_ns, stat.st_size)
    return found


def find_changes(before: Snapshot, now: Snapshot) -> list[str]:
    """The names of files that were changed, created or deleted."""
    return short_names(file for file in {*before, *now} if before.get(file) != now.get(file))


def short_names(files: Iterable[str]) -> list[str]:
    """At most five names, for people."""
    names = sorted({Path(file).name for file in files})
    return names if len(names) <= 5 else [*names[:4], f"{len(names) - 4} more"]


def list_app_files(error: BaseException | None = None) -> list[str]:
    """The files of imported modules that belong to the app, not to installed packages, and its settings files.

    After an ``error``, also the files in its traceback and the Python files beside them: a new file may be the fix.
    """
    found = {file for module in [*sys.modules.values()] if (file := getattr(module, "__file__", None))}
    if error is not None:
        found |= set(_files_in(error))
        found |= {str(each) for file in [*found] if _is_app_file(file) for each in Path(file).parent.glob("*.py")}
    files = {str(Path(file).resolve()) for file in found if _is_app_file(file)}
    roots = {project_root(Path(file)) for file in files}
    return sorted(files | {str(root / name) for root in roots for name in PROJECT_FILES if (root / name).is_file()})


def _files_in(error: BaseException) -> Iterator[str]:
    if isinstance(error, SyntaxError) and error.filename:
        yield error.filename
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code.co_filename
        trace = trace.tb_next


_INSTALLED = (
    str(Path(__file__).parent.parent) + os.sep,  # this package, also when it is not installed in a library folder
    *(
        str(Path(sysconfig.get_path(name)).resolve()) + os.sep
        for name in ("stdlib", "platstdlib", "purelib", "platlib")
    ),
)


def _is_app_file(file: str) -> bool:
    path = Path(file)
    return path.suffix == ".py" and path.is_file() and not str(path.resolve()).startswith(_INSTALLED)


# ---- children --------------------------------------------------------------------------------------


def check_app(given: Assignment, stopped: Callable[[], bool]) -> WatchedApp:
    """Import the app in a new process, and find the files that the import read. Ends early when ``stopped()``."""
    reading, writing = os.pipe()
    child = _start_child("check", given, report=writing, stdin=subprocess.PIPE)
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        while not select.select([pipe], [], [], POLL / 5)[0]:
            if stopped():
                os.killpg(child.pid, signal.SIGKILL)  # an import has nothing to finish
                break
        result = pipe.read()
    code = child.wait()
    assert child.stdin is not None
    child.stdin.close()
    if not result:
        return WatchedApp([], f"the import ended with exit code {code}")
    return msgspec.json.decode(result, type=WatchedApp)


def _start_child(
    verb: str, given: Assignment, *, report: int | None = None, stdin: int | None = None
) -> subprocess.Popen[bytes]:
    """A process in its own session, which gets no signals of the terminal: the reloader decides when it ends."""
    return subprocess.Popen(
        [sys.executable, "-m", "mainspring.launch.reload", verb, msgspec.json.encode(given).decode(), str(report or 0)],
        start_new_session=True, stdin=stdin or subprocess.DEVNULL, pass_fds=() if report is None else (report,),
        env={**os.environ, "MAINSPRING_URL": given.url} if given.url else None,
    )  # fmt: skip


def _run_check(given: Assignment, report: int) -> int:
    from mainspring.launch.child import explain_error, load_target
    from mainspring.worker import process_tree

    os.set_inheritable(report, False)
    parent = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    threading.Thread(target=_end_with_parent, args=(parent, signal.SIGKILL), daemon=True).start()
    process_tree.die_with_parent(os.getppid())  # works also while the import holds the GIL
    sys.path.insert(0, given.folder)
    try:
        app = load_target(given.target)
        config = app.parts(**given.options)
        config.store.check_processes("mainspring dev")
        if given.url:
            _prepare_store(app, given.url)
        checked = WatchedApp(list_app_files(), ignore=_line_to_ignore(config.store.url))
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything while it is imported
        text = explain_error(error.with_traceback(_without_own_frames(error.__traceback__)))
        checked = WatchedApp(list_app_files(error), text)
    with os.fdopen(report, "wb") as pipe:
        pipe.write(msgspec.json.encode(checked))
    return 0


def _prepare_store(app: Any, url: str) -> None:
    """Refuse an app that uses another store. Create the tables that are missing in this one."""
    from mainspring.client import blocking

    if app.settings.url != url:
        raise ConfigError(
            f"the app sets its own store, {app.settings.shown_url}",
            hint="Remove the URL: Mainspring() then takes the store from the settings, and here from --engine.",
        )
    blocking.run("app.client.migrate", app.client.migrate)


def _line_to_ignore(url: str) -> str:
    from mainspring.launch.gitignore import missing_line

    return missing_line(url)


def _without_own_frames(trace: TracebackType | None) -> TracebackType | None:
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return trace


def _run_server(given: Assignment) -> int:
    from mainspring.launch.run import run_target

    threading.Thread(target=_end_with_parent, args=(0, signal.SIGTERM), daemon=True).start()
    return run_target(given.target, given.options, log=given.log, path=[given.folder])


def _end_with_parent(pipe: int, number: signal.Signals) -> None:
    """Wait for the end of standard input, which comes when the reloader ends in any way, then end this process."""
    os.read(pipe, 1)
    os.kill(os.getpid(), number)


def main(arguments: list[str]) -> int:
    """The entry of a child process."""
    verb, encoded, report = arguments
    given = msgspec.json.decode(encoded, type=Assignment)
    return _run_check(given, int(report)) if verb == "check" else _run_server(given)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
