"""The entry of a worker process: ``python -m mainspring.launch.child --target shop.app:app --options '{...}'``.

Started by a supervisor, which hands over the link, the board and the death lock. The target is an
object with ``parts(**options)``, such as a ``Mainspring``; it is imported here and nowhere else.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import logging
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from mainspring.common.redact import redact
from mainspring.errors import ConfigError, MainspringError, StoreUnavailable, did_you_mean
from mainspring.observe import logs
from mainspring.worker.supervise import process_tree, shutdown, signals
from mainspring.worker.supervise.child_pipe import (
    PLACE,
    Bye,
    CannotStart,
    ChildEnvironment,
    Hello,
    WorkerPipe,
    end_group,
)
from mainspring.worker.supervise.signals import Exit

if TYPE_CHECKING:
    from mainspring.stores.door import Door
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.lease.heartbeat_thread import HeartbeatThread
    from mainspring.worker.loop.outage import Outage
    from mainspring.worker.records import Registration

log = logging.getLogger("mainspring.worker")


class WorkerTarget(Protocol):
    """What a worker can be made from."""

    def parts(self, **options: Any) -> WorkerConfig: ...


def main(arguments: list[str] | None = None) -> int:
    """Run one worker process to its end."""
    parser = argparse.ArgumentParser(prog="python -m mainspring.launch.child", description=__doc__)
    parser.add_argument("--target", required=True, help="module:object, or file.py[:object]")
    parser.add_argument("--options", default="{}", help="worker options as JSON")
    parser.add_argument("--log", default="{}", help="how to log, whatever the app says, as JSON")
    parser.add_argument("--path", default="[]", help="where to look for modules, as JSON")
    given = parser.parse_args(arguments)
    sys.path += [folder for folder in msgspec.json.decode(given.path) if folder not in sys.path]
    place = os.environ.pop(PLACE, None)
    if place is None:
        parser.error(f"{PLACE} is not set: this command is started by a supervisor")
    told = msgspec.json.decode(given.options), msgspec.json.decode(given.log)
    return _run(msgspec.json.decode(place, type=ChildEnvironment), given.target, *told)


def load_target(target: str) -> WorkerTarget:
    """The object that ``module:object`` or ``file.py[:object]`` names.

    A file is imported under the name that its tasks carry when it is run as a script: its stem, its
    folder at the head of the path. Without ``:object`` the module must hold exactly one that
    can make a worker's parts.
    """
    where, _, attribute = target.partition(":")
    if not where.endswith(".py") and not all(part.isidentifier() for part in where.split(".")):
        what = "a folder, not an app" if Path(where).is_dir() else "neither a module nor a file of Python"
        raise ConfigError(f"{target} is {what}", hint="Name it: module:object, module, file.py or file.py:object.")
    module = _import_file(Path(where)) if where.endswith(".py") else importlib.import_module(where)
    if not attribute:
        return _only_target(module)
    found: Any = module
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            near = did_you_mean(name, [known for known in dir(found) if hasattr(getattr(found, known, None), "parts")])
            raise ConfigError(f"{target}: {where} has no {name!r}{near}") from None
    if not callable(getattr(found, "parts", None)):
        raise ConfigError(f"{target} is a {type(found).__name__}, not an app", hint="Name a Mainspring object.")
    return cast("WorkerTarget", found)


def _import_file(path: Path) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file", hint="Name the file that declares the app.")
    sys.path.insert(0, str(path.parent))
    loaded = importlib.import_module(path.stem)
    if Path(getattr(loaded, "__file__", None) or "").resolve() != path:
        raise ConfigError(
            f"{path}: its name {path.stem!r} belongs to another module, {getattr(loaded, '__file__', 'a built-in')}",
            hint="Rename the file.",
        )
    return loaded


def _only_target(module: Any) -> WorkerTarget:
    found = {
        id(value): (name, value)
        for name, value in vars(module).items()
        if not isinstance(value, type) and callable(getattr(value, "parts", None)) and hasattr(value, "task")
    }
    if len(found) == 1:
        return cast("WorkerTarget", next(iter(found.values()))[1])
    names = ", ".join(name for name, _ in found.values()) or "none"
    raise ConfigError(
        f"{module.__name__}: which object is the app? Found: {names}", hint=f"Write {module.__name__}:app."
    )


# ---- one worker --------------------------------------------------------------------------------------


def _run(place: ChildEnvironment, target: str, options: dict[str, Any], log: dict[str, str]) -> int:
    """From the inherited descriptors to the exit code."""
    for fd in (place.link, place.board, place.lock):
        os.set_inheritable(fd, False)  # programs that a job starts must not hold them
    signals.dump_on_quit()
    signals.keep_from_children()
    process_tree.die_with_parent(place.parent)
    link = WorkerPipe(place.link)
    link.listen()
    try:
        parts = load_target(target).parts(**options)
        logs.configure(msgspec.structs.replace(parts.logs, **log), worker=True)  # after what the program set up itself
    except (Exception, SystemExit) as error:  # noqa: BLE001 - whatever user code raises while it is imported
        link.say(CannotStart(explain(error)))
        return Exit.FAILED
    grace = parts.settings.grace / 1e6
    worker = _Worker(place, link, parts)
    code = shutdown.run_loop(worker.run(), grace=grace / 2, factory=_loop_factory(), broken=worker.broken)
    if link.orphaned:
        end_group()
    shutdown.leave_process(code, grace=grace / 2)
    return code


class _Worker:
    """Puts a worker together, runs it and leaves in a way that cannot hang."""

    def __init__(self, place: ChildEnvironment, link: WorkerPipe, parts: WorkerConfig) -> None:
        from mainspring.worker.lease.death_lock import DeathLock
        from mainspring.worker.lease.shared_state import SharedState

        self._link = link
        self._parts = parts
        self._board = SharedState.attach(place.board)
        self._board.slots = max(1, parts.settings.async_slots + parts.settings.thread_slots)
        self._lock = DeathLock(place.lock, place.lock_path)

    async def run(self) -> int:
        try:
            code = await self._serve()
        except Exception as error:
            if self._board.lease_end > 0:  # it was registered: not a failure to start
                raise
            self._link.say(CannotStart(explain(error)))
            return Exit.FAILED
        self._leave(code)
        return code

    def broken(self, error: BaseException) -> None:
        """User code ended the loop. No goodbye: whoever did it is to be found out."""
        if self._board.lease_end > 0:
            log.critical("user code ended the event loop of this worker: %r", error)
        else:
            self._link.say(CannotStart(explain(error)))
        shutdown.exit_now(Exit.FAILED)

    async def _serve(self) -> int:
        from mainspring.worker.worker import Worker

        parts, store = self._parts, await self._open_store()
        worker = Worker(parts, store, board=self._board, beater=self._beater, info=self._lock.facts(), supervised=True)
        self._link.obey(worker.drain, worker.stop, worker.told)
        with signals.owned(signals.Stops(worker.drain, worker.stop)):
            code = await worker.run()
        await store.close()
        return code

    async def _open_store(self) -> Door:
        """The worker's store, open; a store that cannot be reached is waited for."""
        from mainspring.stores.connect import connect_to
        from mainspring.worker.loop.retry_log import RetryLog

        store, trouble = connect_to(self._parts.store), RetryLog("opening the store", log)
        while True:
            try:
                await store.open()
            except StoreUnavailable as error:
                await asyncio.sleep(trouble.failed(error))
            else:
                trouble.over()
                return store

    def _beater(
        self,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
        outage: Outage,
    ) -> HeartbeatThread:
        from mainspring.worker.lease.heartbeat_thread import HeartbeatThread

        return HeartbeatThread(
            self._parts.store, registration, worker_id, self._parts.settings, self._board,
            on_lost=on_lost, on_lease_low=on_lease_low, outage=outage, announce=self._announce,
        )  # fmt: skip

    def _announce(self, worker: str) -> None:
        self._link.say(Hello.of(worker, self._parts))

    def _leave(self, code: int) -> None:
        """A body that would not end must not keep the process: what the board shows is the supervisor's now."""
        self._link.say(Bye())
        self._link.over.set()
        if self._board.jobs():
            if self._link.orphaned:
                end_group()
            shutdown.exit_now(code)


def explain(error: BaseException) -> str:
    """For people: our own errors say it all, others come with their traceback."""
    if isinstance(error, MainspringError):
        return f"{type(error).__name__}: {error}"
    trace = error.__traceback__
    while trace is not None and _imports(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return redact("".join(traceback.format_exception(type(error), error, trace)))


def _imports(file: str) -> bool:
    """Whether a frame only imports: ours, and the machinery below it."""
    return file in (__file__, importlib.__file__) or file.startswith("<frozen importlib")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
