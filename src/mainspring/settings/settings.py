"""An app's settings: keywords are checked at once; file and environment are read on first use."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypedDict

import msgspec

from mainspring.common.duration import Duration
from mainspring.common.handles import foreign_hint
from mainspring.common.redact import remember_url
from mainspring.common.sizes import Size
from mainspring.errors import InvalidOption, UnknownOption, did_you_mean, mask_url
from mainspring.jobs.records import Retention
from mainspring.options.table import options_for, resolve_options
from mainspring.settings.project import default_name, default_url
from mainspring.settings.table import OF_ONE_RUN, TABLE, WORKER
from mainspring.tasks.declaration import no_version
from mainspring.tasks.hooks import Hooks
from mainspring.tasks.middleware import Middleware

if TYPE_CHECKING:
    from mainspring.pools.settings import PoolSettings
    from mainspring.schedules.sync import CodeSchedules
    from mainspring.settings.sources import SettingOrigin
    from mainspring.stores.connect import StoreAddress
    from mainspring.tasks.registry import Registry
    from mainspring.tasks.routing import Routes
    from mainspring.tasks.spec import TaskSpec
    from mainspring.worker.config import LogSettings, ReplacedCap, WorkerConfig


class Settings(TypedDict, total=False):
    """Keyword arguments of ``Mainspring``: settings of the app, and defaults for its workers."""

    durability: Literal["full", "normal"]
    strict: bool
    replicas: int
    wait_fsync: bool
    listen_url: str | None
    pooler: bool
    routes: Mapping[str, str]
    full_wait: Duration
    enqueue_patience: Duration
    keep: Duration
    keep_count: int
    keep_dead: Duration
    keep_dead_count: int
    payload_limit: Size
    result_limit: Size
    log_level: Literal["debug", "info", "warning", "error", "critical"]
    log_format: Literal["auto", "text", "json"]
    log_file: str | None
    redact: Sequence[str]
    queues: Sequence[str] | str | None
    async_slots: int
    thread_slots: int
    process_slots: int
    concurrency: int | Mapping[str, int]
    lease: Duration
    drain: Duration
    poll: Duration
    sweep: Duration
    grace: Duration
    roles: Sequence[str] | str
    labels: Collection[str] | str


class AppSettings:
    """The settings of one app in normal form, one attribute each. The first access reads all settings.

    The values do not change afterwards: producers and workers see one state of file and environment.
    """

    url: str
    namespace: str
    name: str | None
    include: tuple[str, ...]
    version: str | None
    durability: str
    strict: bool
    replicas: int
    wait_fsync: bool
    listen_url: str | None
    pooler: bool
    routes: Routes
    full_wait: int
    enqueue_patience: int
    keep: int
    keep_count: int
    keep_dead: int
    keep_dead_count: int
    payload_limit: int
    result_limit: int
    log_level: str
    log_format: str
    log_file: str | None
    redact: tuple[str, ...]
    roles: frozenset[str]
    concurrency: int | dict[str, int]
    origins: Mapping[str, SettingOrigin]
    """Every setting by name: its value as users write it, without secrets, and the place where it was given."""
    concurrency_places: tuple[SettingOrigin, ...]
    """``concurrency`` of each place that has it, the strongest first."""

    def __init__(self, given: Mapping[str, Any], declared_in: str | None = None) -> None:
        self.declared_in = declared_in
        self._given = {name: _checked(name, value) for name, value in given.items()}
        self._address: StoreAddress | None = None
        self._memory = uuid.uuid4().hex
        """The name of the app's store if it is in memory: another app in this process has another one."""

    if not TYPE_CHECKING:  # a type checker uses the annotations above

        def __getattr__(self, name: str) -> Any:
            if name not in TABLE and name not in ("origins", "concurrency_places"):
                raise AttributeError(f"'AppSettings' object has no attribute {name!r}")
            self.load()
            return self.__dict__[name] if name in self.__dict__ else default_url(self.declared_in)

    def load(self) -> None:
        """Read the file and the environment now; ``ConfigError`` names the wrong value and its place."""
        from mainspring.settings.sources import read_places, resolve

        places = read_places(self._given, self.declared_in)
        found = resolve(places, self.declared_in)
        if found["listen_url"].value is not None:
            remember_url(found["listen_url"].value)
        if found["url"].value is not None:
            remember_url(found["url"].value)
        elif self.declared_in is not None:
            found["url"] = found["url"]._replace(value=default_url(self.declared_in))
        self.__dict__.update({name: each.value for name, each in found.items() if name != "url" or each.value})
        self.concurrency_places = tuple(each["concurrency"] for each in places if "concurrency" in each)
        if found["name"].value is None and self.declared_in is not None:
            name, where = default_name(self.declared_in)
            found["name"] = found["name"]._replace(value=name, where=where)  # shown; the setting itself stays None
        self.origins = {name: each._replace(value=TABLE[name].show(each.value)) for name, each in found.items()}

    @property
    def program(self) -> str:
        """The name of the program; empty in an interactive session without a name."""
        return self.name or (default_name(self.declared_in)[0] if self.declared_in is not None else "")

    @property
    def shown_url(self) -> str:
        url = self.__dict__.get("url") or self._given.get("url")
        return mask_url(url) if url is not None else "(default store)"

    @property
    def address(self) -> StoreAddress:
        """The address of the store, with all that is needed to open it."""
        if self._address is not None:
            return self._address
        from mainspring.stores.connect import StoreAddress

        at = StoreAddress(**{name: getattr(self, name) for name in StoreAddress.__struct_fields__ if name in TABLE})
        at.check()
        return msgspec.structs.replace(at, memory=self._memory) if at.in_memory else at

    def use(self, address: StoreAddress | None) -> None:
        """Use another store than the settings name, for tests; None restores the store of the settings."""
        self._address = address

    @property
    def retention(self) -> Retention:
        """How long ended jobs are kept, as given, even if it is shorter than the default minimum."""
        least = min(Retention().keep_at_least, self.keep, self.keep_dead)
        return Retention(
            keep=self.keep, keep_count=self.keep_count, keep_at_least=least,
            keep_dead=self.keep_dead, keep_dead_count=self.keep_dead_count,
        )  # fmt: skip

    @property
    def logs(self) -> LogSettings:
        from mainspring.worker.config import LogSettings

        return LogSettings(level=self.log_level, format=self.log_format, file=self.log_file, redact=self.redact)

    def worker(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """Worker options in normal form; options given now replace the app's."""
        of_app = {setting.name: getattr(self, setting.name) for setting in WORKER}
        resolved = resolve_options("worker", given, base=of_app, subject="worker")
        if resolved["roles"].isdisjoint(("worker", "scheduler")):
            where = "" if "roles" in given else self.origins["roles"].where
            raise InvalidOption(
                "roles", sorted(resolved["roles"]), "includes neither 'worker' nor 'scheduler'",
                subject=where or "worker",
                hint='A worker needs the role "worker", "scheduler" or "all".',
            )  # fmt: skip
        if "worker" not in resolved["roles"]:
            _refuse_job_options(given)
        return resolved

    def parts(
        self, tasks: Registry, given: Mapping[str, Any], *,
        lifespans: tuple[Callable[..., Any], ...], hooks: Hooks, middleware: tuple[Middleware, ...],
        schedules: CodeSchedules, find_target: Callable[[], str] | None = None,
        pools: Mapping[str, PoolSettings] = MappingProxyType({}),
    ) -> WorkerConfig:  # fmt: skip
        """The configuration of a worker of this app."""
        resolved = self.worker(given)
        specs = {name: spec._replace(result_limit=self.result_limit) for name, spec in tasks.specs().items()}
        from mainspring.pools.declare import refuse_undeclared  # not at the top: see below

        refuse_undeclared(specs.values(), pools)
        if "worker" in resolved["roles"] and not resolved["async_slots"] and not resolved["thread_slots"]:
            _refuse_no_slots(resolved["process_slots"] > 0 and any(spec.pool for spec in specs.values()))
        if self.version is None and (pinned := [name for name, spec in specs.items() if spec.pinned]):
            raise no_version(pinned[0])
        replaced = replaced_caps(resolved["concurrency"], "concurrency" in given, self.concurrency_places)
        if isinstance(resolved["concurrency"], int):
            resolved["concurrency"], resolved["max_jobs"] = {}, resolved["concurrency"]
        known_queues, chosen = tasks.queues(), bool(resolved["queues"])
        resolved["queues"] = resolved["queues"] or known_queues
        if "concurrency" in given:
            _refuse_unserved(resolved["concurrency"], resolved["queues"])

        def learn(name: str) -> TaskSpec | None:
            task = tasks.find(name) or tasks.built_in(name, "async" if resolved["async_slots"] else "thread")
            return None if task is None else task.spec()._replace(result_limit=self.result_limit)

        # Not at the top: declaring an app needs neither schedules nor a worker.
        from mainspring.schedules.plan import group_limit
        from mainspring.worker.config import WorkerConfig, WorkerSettings

        groups = tasks.groups.items()
        return WorkerConfig(
            self.address, specs, WorkerSettings(**resolved), lifespans, self.version or "", hooks, middleware,
            self.retention, self.logs, learn, tasks.weights,
            tasks.declared_queues.settings,
            (*tasks.declared_queues.limits, *(group_limit(name, each.max_concurrent) for name, each in groups)),
            chosen, known_queues, schedules, self.program, self.routes, replaced, pools, find_target=find_target,
        )  # fmt: skip


def replaced_caps(
    chosen: int | Mapping[str, int], of_run: bool, places: Sequence[SettingOrigin]
) -> tuple[ReplacedCap, ...]:
    """The caps by queue of weaker places that have no effect, because ``chosen`` has no cap for their queues.

    ``of_run`` says that ``chosen`` is an option of one run, such as ``-c 8``; otherwise it is of the first place.
    """
    from mainspring.worker.config import ReplacedCap

    has = set() if isinstance(chosen, int) else set(chosen)
    stronger = "" if of_run or not places else _spelled_place(places[0])
    found: dict[str, ReplacedCap] = {}
    for place in places if of_run else places[1:]:
        if isinstance(place.value, int):
            continue
        for queue, cap in place.value.items():
            if queue not in has:
                found.setdefault(queue, ReplacedCap(queue, cap, place.where, stronger))
    return tuple(found.values())


def _spelled_place(place: SettingOrigin) -> str:
    return place.where if place.source == "environment" else f"concurrency= of Mainspring(...) in {place.where}"


def _refuse_no_slots(runs_processes: bool) -> None:
    """Refuse a worker without async and thread slots, unless tasks of the app run in its process slots."""
    if not runs_processes:
        hint = "Give async_slots for async def tasks, thread_slots for def tasks. roles=['scheduler'] runs no jobs."
        why = "is given with async_slots=0: the worker could run no job"
        raise InvalidOption("thread_slots", 0, why, subject="worker", hint=hint)


def _refuse_job_options(given: Mapping[str, Any]) -> None:
    """Refuse options about jobs that are given to a process whose roles run no jobs."""
    for name in ("queues", "concurrency", "async_slots", "thread_slots", "process_slots", "labels"):
        if name in given:
            raise InvalidOption(
                name, given[name], "needs the role 'worker': a scheduler runs no jobs", subject="worker",
                hint=f'Leave {name} out, or add "worker" to roles.',
            )  # fmt: skip


def _refuse_unserved(concurrency: Mapping[str, int], queues: Sequence[str]) -> None:
    """Refuse ``concurrency`` of one run for a queue that this worker does not serve: it would have no effect.

    A setting of the app may name queues of its other workers; the worker warns of a queue that nothing names.
    """
    for queue in concurrency:
        if queue not in queues:
            raise InvalidOption(
                "concurrency", dict(concurrency),
                f"this worker does not serve the queue {queue!r}{did_you_mean(queue, queues)}",
                subject="worker", hint=f"It serves: {', '.join(queues)}.",
            )  # fmt: skip


def _checked(name: str, value: Any) -> Any:
    setting = TABLE.get(name)
    if setting is None:
        raise _refusal(name)
    try:
        return setting.convert(value, name)
    except InvalidOption as error:
        raise error.about("Mainspring") from None


def _refusal(name: str) -> UnknownOption:
    if hint := foreign_hint(name, "setting", "worker option"):
        return UnknownOption("Mainspring", name, hint=hint)
    if name in OF_ONE_RUN:
        hint = f"{name!r} belongs to one run: app.run({name}=...)."
    elif any(option.name == name for option in options_for("task")):
        hint = f"{name!r} is an option of @app.task(...)."
    return UnknownOption("Mainspring", name, TABLE, hint=hint)
