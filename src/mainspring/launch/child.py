"""The entry of a worker process: ``python -m mainspring.launch.child --target shop.app:app --options '{...}'``.

A supervisor starts it, and passes the pipe, the shared state and the death lock. The target is an object with
``parts(**options)``, such as a ``Mainspring``. It is imported here, and never in the supervisor.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import importlib.util
import logging
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, cast

import msgspec

from mainspring.common.current import importing
from mainspring.common.redact import redact
from mainspring.errors import ConfigError, MainspringError, StoreUnavailable, did_you_mean
from mainspring.observe import logs
from mainspring.tasks.naming import find_module
from mainspring.worker import process_tree
from mainspring.worker.supervise import shutdown, signals
from mainspring.worker.supervise.child_pipe import (
    VARIABLE,
    Bye,
    CannotStart,
    ChildEnvironment,
    Hello,
    StuckBody,
    WorkerPipe,
    kill_own_family,
)
from mainspring.worker.supervise.signals import Exit

if TYPE_CHECKING:
    from mainspring.stores.door import Door
    from mainspring.worker.config import WorkerConfig
    from mainspring.worker.lease.heartbeat_thread import CheckLoop, HeartbeatThread
    from mainspring.worker.records import Registration
    from mainspring.worker.retry_log import Outage

log = logging.getLogger("mainspring.worker")


class WorkerTarget(Protocol):
    """An object that can build the configuration of a worker."""

    def parts(self, **options: Any) -> WorkerConfig: ...


def main(arguments: list[str] | None = None) -> int:
    """Run one worker process to its end."""
    parser = argparse.ArgumentParser(prog="python -m mainspring.launch.child", description=__doc__)
    parser.add_argument("--target", required=True, help="module:object, or file.py[:object]")
    parser.add_argument("--options", default="{}", help="worker options as JSON")
    parser.add_argument("--log", default="{}", help="log settings that override those of the app, as JSON")
    parser.add_argument("--path", default="[]", help="more folders for sys.path, as JSON")
    given = parser.parse_args(arguments)
    sys.path += [folder for folder in msgspec.json.decode(given.path) if folder not in sys.path]
    inherited = ChildEnvironment.take()
    if inherited is None:
        parser.error(f"{VARIABLE} is not set: a supervisor starts this command, use 'mainspring worker' instead")
    return _run(inherited, given.target, msgspec.json.decode(given.options), msgspec.json.decode(given.log))


def load_target(target: str) -> WorkerTarget:
    """The object that ``module:object`` or ``file.py[:object]`` names.

    A file is imported under the name of ``find_module``: its tasks have the same names when it is run as a script, and
    when a program imports it from its package. Without ``:object`` the module must contain exactly one app.
    """
    where, _, attribute = target.partition(":")
    if not where.endswith(".py") and not all(part.isidentifier() for part in where.split(".")):
        what = "a folder, not an app" if Path(where).is_dir() else "neither a Python module nor a Python file"
        raise ConfigError(f"{target} is {what}", hint="Write module:object, module, file.py or file.py:object.")
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
        raise ConfigError(f"{target} is a {type(found).__name__}, not an app", hint="Give a Mainspring object.")
    return cast("WorkerTarget", found)


def _import_file(path: Path) -> Any:
    path = path.resolve()
    if not path.is_file():
        raise ConfigError(f"{path}: there is no such file", hint="Give the file that declares the app.")
    name, folder = find_module(path)
    sys.path.insert(0, str(folder))
    if folder != path.parent:
        sys.path.append(str(path.parent))  # a module may import its neighbours without their package, as a script does
    loaded = importlib.import_module(name)
    if Path(getattr(loaded, "__file__", None) or "").resolve() != path:
        raise ConfigError(
            f"{path}: another module has the name {name!r}: {getattr(loaded, '__file__', 'a built-in module')}",
            hint="Rename the file.",
        )
    _refuse_second_import(loaded, path)
    return loaded


def _refuse_second_import(loaded: Any, path: Path) -> None:
    """A module that is imported under two names exists twice: tasks would be added to the app that does not run."""
    again = sys.modules.get(path.stem)
    if again is not None and again is not loaded and Path(getattr(again, "__file__", None) or "").resolve() == path:
        raise ConfigError(
            f"{path} is imported under two names, {loaded.__name__!r} and {path.stem!r}, so its app exists twice",
            hint=f"Import it as {loaded.__name__} everywhere, or remove {path.parent / '__init__.py'}.",
        )


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


def _run(inherited: ChildEnvironment, target: str, options: dict[str, Any], log: dict[str, str]) -> int:
    """From the inherited descriptors to the exit code."""
    signals.dump_on_quit()
    signals.reset_in_forked_children()
    process_tree.die_with_parent(inherited.parent)
    pipe = WorkerPipe(inherited.pipe)
    pipe.listen()
    try:
        config = _import_config(target, options)
        config.store.check_processes("a worker process")
        config = config._replace(logs=msgspec.structs.replace(config.logs, **log))
        logs.configure(config.logs, worker=True)  # after the program's own log setup
    except (Exception, SystemExit) as error:  # noqa: BLE001 - user code may raise anything while it is imported
        pipe.send(CannotStart(explain_error(error)))
        return Exit.FAILED
    grace = config.settings.grace / 1e6
    worker = _WorkerProcess(inherited, pipe, config)
    code = shutdown.run_loop(worker.run(), grace=grace / 2, factory=_loop_factory(), on_broken=worker.on_broken)
    if pipe.orphaned:
        kill_own_family()
    shutdown.leave_process(code, grace=grace / 2)
    return code


def _import_config(target: str, options: dict[str, Any]) -> WorkerConfig:
    """Import the app and its modules. Their code must not wait for a job meanwhile."""
    token = importing.set(True)
    try:
        return load_target(target).parts(**options)
    finally:
        importing.reset(token)


class _WorkerProcess:
    """Builds a worker, runs it, and ends the process in a way that cannot hang."""

    def __init__(self, inherited: ChildEnvironment, pipe: WorkerPipe, config: WorkerConfig) -> None:
        from mainspring.worker.lease.death_lock import DeathLock
        from mainspring.worker.lease.shared_state import SharedState

        self._pipe = pipe
        self._config = config
        self._shared_state = SharedState.attach(inherited.shared_state)
        self._shared_state.slots = max(1, config.settings.async_slots + config.settings.thread_slots)
        self._lock = DeathLock(inherited.lock, inherited.lock_path)

    async def run(self) -> int:
        try:
            code = await self._serve()
        except Exception as error:
            if self._shared_state.lease_end > 0:  # it was registered: not a failure to start
                raise
            self._pipe.send(CannotStart(explain_error(error)))
            return Exit.FAILED
        self._leave(code)
        return code

    def on_broken(self, error: BaseException) -> None:
        """User code ended the loop. This is a crash, without a ``Bye``: the store must find the guilty job."""
        if self._shared_state.lease_end > 0:
            log.critical("user code ended the event loop of this worker: %s", shutdown.describe_broken(error))
        else:
            self._pipe.send(CannotStart(explain_error(error)))
        shutdown.exit_now(Exit.FAILED)

    async def _serve(self) -> int:
        from mainspring.launch.services import build_services
        from mainspring.worker.worker import Worker

        store = await self._open_store()
        worker = Worker(
            self._config, store, shared_state=self._shared_state, services=build_services,
            heartbeats=self._make_heartbeats, info=self._lock.facts(), supervised=True,
            supervisor_gone=lambda: self._pipe.orphaned, report_stuck=self._report_stuck,
        )  # fmt: skip
        self._pipe.set_handlers(worker.drain, worker.stop, worker.on_jobs_moved)
        with signals.handle_stop_signals(signals.StopCounter(worker.drain, worker.stop)):
            code = await worker.run()
        await store.close()
        return code

    async def _open_store(self) -> Door:
        """The open store of the worker. Retries while the store cannot be reached."""
        from mainspring.stores.connect import connect_to
        from mainspring.worker.retry_log import RetryLog

        store, retry_log = connect_to(self._config.store), RetryLog("opening the store", log)
        while True:
            try:
                await store.open()
            except StoreUnavailable as error:
                await asyncio.sleep(retry_log.record_failure(error))
            else:
                retry_log.record_success()
                return store

    def _make_heartbeats(
        self,
        registration: Callable[[], Registration],
        worker_id: Callable[[], str],
        *,
        on_lost: Callable[[], None],
        on_lease_low: Callable[[], None],
        outage: Outage,
        check_loop: CheckLoop,
    ) -> HeartbeatThread:
        from mainspring.worker.lease.heartbeat_thread import HeartbeatThread

        return HeartbeatThread(
            self._config.store, registration, worker_id, self._config.settings, self._shared_state,
            on_lost=on_lost, on_lease_low=on_lease_low, outage=outage, announce=self._announce,
            check_loop=check_loop,
        )  # fmt: skip

    def _announce(self, worker: str) -> None:
        self._pipe.send(Hello.of(worker, self._config))

    def _report_stuck(self, job: bytes, token: int, place: str) -> None:
        self._pipe.send(StuckBody(job=job.hex(), token=token, place=place))

    def _leave(self, code: int) -> None:
        """A body that does not end must not keep the process. The supervisor gives back jobs in the shared state."""
        self._pipe.send(Bye())
        self._pipe.ended.set()
        if self._shared_state.jobs():
            if self._pipe.orphaned:
                kill_own_family()
            shutdown.exit_now(code)


def explain_error(error: BaseException) -> str:
    """The text of an error for people: errors of Mainspring without a traceback, other errors with one."""
    if isinstance(error, MainspringError):
        return f"{type(error).__name__}: {error}"
    trace = error.__traceback__
    while trace is not None and _is_import_frame(trace.tb_frame.f_code.co_filename):
        trace = trace.tb_next
    return redact("".join(traceback.format_exception(type(error), error, trace)))


def _is_import_frame(file: str) -> bool:
    """Whether a frame only imports: frames of this package, and of ``importlib``."""
    ours = file.startswith(str(Path(__file__).parent))
    return ours or file == importlib.__file__ or file.startswith("<frozen importlib")


def _loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    if importlib.util.find_spec("uvloop") is None:
        return None
    import uvloop

    return uvloop.new_event_loop


if __name__ == "__main__":
    sys.exit(main())
