"""The tasks, queues and schedules that an app declares, by name."""

from __future__ import annotations

import inspect
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib import import_module
from types import CodeType
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.common.callables import shape_of
from mainspring.errors import InvalidOption
from mainspring.queues.fairness import FairKeys, build_fair_keys
from mainspring.queues.queue import DeclaredQueues, Queue
from mainspring.tasks import naming
from mainspring.tasks.routing import Routes

if TYPE_CHECKING:
    from mainspring.app import Mainspring
    from mainspring.limits.declare import BoundLimit
    from mainspring.options.checks import ScheduleGroup
    from mainspring.schedules.declare import Declaration
    from mainspring.schedules.relations import ScheduleRelations
    from mainspring.tasks.decorators import Tasks
    from mainspring.tasks.spec import TaskSpec
    from mainspring.tasks.task import BaseTask

_stamps = itertools.count(1)


_USE_IT = "use it as a decorator of a function, or give it call=task.s(...)"


def _warn(logger: str, text: str, *values: object) -> None:
    import logging  # not needed to declare tasks

    logging.getLogger(logger).warning(text, *values)


def remember_begun(begun: dict[object, str], began: object, what: str | None) -> None:
    """``app.schedule(...)`` without a call was called (``what``), or its result has decorated a function (None)."""
    if what is None:
        begun.pop(began, None)
    else:
        begun[began] = what


class HasFunction(Protocol):
    """A task, or a schedule of a task."""

    @property
    def fn(self) -> Any: ...

    @property
    def module_run(self) -> object: ...


class Registry:
    """Tasks by name. Included modules are imported once, on first use, never when the app is made."""

    def __init__(self, include: Callable[[], Sequence[str]] = tuple, routes: Callable[[], Routes] = Routes) -> None:
        self._settings = [include]  # called once, late: it reads the settings
        self._routes = routes
        self._include: list[str] = []
        self._by_name: dict[str, BaseTask[Any, Any]] = {}
        self.declared_queues = DeclaredQueues()
        self.fair: dict[str, FairKeys] = {}
        """The fair keys of declared queues with ``fair_by``."""
        self.scheduled: dict[str, Declaration] = {}
        """The schedules that the code declares, by name."""
        self.groups: dict[str, ScheduleGroup] = {}
        self.served: list[frozenset[str]] = []
        """The queues of each embedded worker that runs now."""
        self.begun_schedules: list[dict[object, str]] = [{}]
        """The schedules of the app, and of each included ``Tasks()``, that have no function yet."""
        self.stamp = 0
        """A new number whenever a schedule or a group is declared."""
        self.built_ins: dict[str, Callable[[str], BaseTask[Any, Any]]] = {}
        """Tasks of Mainspring itself, which a worker has besides those of the program."""
        self._wiring: tuple[int, ScheduleRelations] | None = None
        self._lock = threading.RLock()
        self._near: set[str] = set()

    def add(self, task: BaseTask[Any, Any]) -> None:
        """Register a task under its name and aliases; a name of another function is refused."""
        for name in (task.name, *task.aliases):
            other = self._by_name.get(name)
            if other is not None and not same_source(other, task):
                raise InvalidOption(
                    "name",
                    name,
                    f"is already the name of {_place(other)}",
                    subject=f"task {_place(task)}",
                    hint="Give one of the two tasks another name: rename its function, or use @app.task(name=...).",
                )
        keys = self.fair.get(task.declared.options["queue"])
        if keys is not None:
            keys.check_task(task.name, task.declared.argument_names())
        queue = self._routes().queue_for(task.name, task.declared.options["queue"]) if self.served else ""
        if self.served and task.name not in self._by_name and not any(queue in each for each in self.served):
            _warn(
                "mainspring.worker",
                "task %r is declared while a worker of this program runs, and that worker does not serve its queue %r: "
                "start the worker after all declarations", task.name, queue,
            )  # fmt: skip
        self._warn_if_unclaimed(task)
        self._by_name |= dict.fromkeys((task.name, *task.aliases), task)

    def _warn_if_unclaimed(self, task: BaseTask[Any, Any]) -> None:
        """Warn of a task whose jobs wait in lanes of their own, which the running workers do not ask for."""
        if not self.served or task.name in self._by_name:
            return
        options = task.declared.options
        kind = "a bulk task" if task.declared.bulk is not None else ""
        kind = kind or next((f"a task with {name}=" for name in ("needs", "pin_version") if options[name]), "")
        if kind:
            _warn(
                "mainspring.worker",
                "task %r is declared while a worker of this program runs, and it is %s, whose jobs that worker does "
                "not claim: start the worker after all declarations", task.name, kind,
            )  # fmt: skip

    def add_queue(self, queue: Queue) -> Queue:
        """Register a declared queue; refused if a task of the queue lacks an argument that the options name."""
        keys = build_fair_keys(queue.name, queue.options)
        for task in self._by_name.values():
            if keys is not None and task.declared.options["queue"] == queue.name:
                keys.check_task(task.name, task.declared.argument_names())
        known = self.declared_queues.add(queue)
        if keys is not None:
            self.fair[queue.name] = keys
        return known

    def add_schedule(self, declaration: Declaration) -> None:
        """Register a declared schedule; a second schedule with its name is refused."""
        known = self.scheduled.get(declaration.name)
        if known is declaration:
            return
        if known is not None and not declaration.replaces(known):
            raise InvalidOption(
                "name", declaration.name, f"is already the name of a schedule of task {known.task!r}",
                subject=f"schedule of task {declaration.task!r}",
                hint='Give one of the two schedules another name: @app.schedule("nightly", ...).',
            )  # fmt: skip
        if self.served and known is None:
            _warn(
                "mainspring.worker",
                "schedule %r is declared while a worker of this program runs, which has stored its schedules: call "
                "app.schedules.declare(), or start the worker after all declarations", declaration.name,
            )  # fmt: skip
        self.scheduled[declaration.name] = declaration
        self.stamp = next(_stamps)

    def unused_schedules(self) -> list[str]:
        """A sentence for each ``app.schedule(...)`` that declares nothing: no function and no call was given."""
        return [f"{what} declares nothing: {_USE_IT}" for begun in self.begun_schedules for what in begun.values()]

    def add_group(self, group: ScheduleGroup) -> ScheduleGroup:
        """Register a declared group; another group with its name is refused."""
        known = self.groups.setdefault(group.name, group)
        if known != group:
            raise InvalidOption(
                "max_concurrent", group.max_concurrent, f"is {known.max_concurrent} in the first declaration",
                subject=f"group {group.name!r}", hint="Declare a group once.",
            )  # fmt: skip
        self.stamp = next(_stamps)
        return known

    @property
    def wiring(self) -> ScheduleRelations:
        """The relations between the declared schedules."""
        from mainspring.schedules.relations import ScheduleRelations

        if self._wiring is None or self._wiring[0] != self.stamp:
            self._wiring = self.stamp, ScheduleRelations(self.scheduled, self.groups)
        return self._wiring[1]

    def schedule_bounds(self, task: str) -> tuple[BoundLimit, ...]:
        """The limits that the schedule of a task adds to all its jobs; () unless the task has exactly one schedule."""
        return self.wiring.bounds_of(task) if self.scheduled else ()

    def include(self, app: Mainspring, each: Tasks | str) -> None:
        """Add a library's tasks, or remember a module to import on first use."""
        from mainspring.tasks.decorators import Tasks

        if isinstance(each, str):
            if not all(part.isidentifier() for part in each.split(".")):
                raise InvalidOption("include", each, "is not the name of a module", hint='Example: "shop.tasks".')
            self._include.append(each)
        elif isinstance(each, Tasks):
            each.join(app)
        else:
            hint = 'app.include(tasks), where tasks = Tasks() holds them; or app.include("shop.tasks").'
            raise InvalidOption("include", each, "is neither a Tasks() nor the name of a module", hint=hint)

    def find(self, name: str) -> BaseTask[Any, Any] | None:
        """The task of that name or alias, after the included modules were imported."""
        if name not in self._by_name:
            self.import_included()
        return self._by_name.get(name)

    def built_in(self, name: str, kind: str) -> BaseTask[Any, Any] | None:
        """The task of Mainspring itself with that name, for slots of this kind."""
        make = self.built_ins.get(name)
        return None if make is None else make(kind)

    def import_included(self) -> None:
        with self._lock:
            if self._settings:
                self._include = [*self._settings[0](), *self._include]
                self._settings.clear()
            while self._include:
                _import_included(self._include[0])
                self._include.pop(0)

    def warn_of_near_name(self, task: str) -> None:
        """Warn once of a call by name whose task is not declared here and looks like a task of the same module.

        It is not an error: another program may have a task of that name.
        """
        module, dot, name = task.rpartition(".")
        if not dot or task in self._near:
            return
        known = [each.rpartition(".")[2] for each in self._by_name if each.rpartition(".")[0] == module]
        if near := get_close_matches(name, known, n=1, cutoff=0.8):
            self._near.add(task)
            other = f"{module}.{near[0]}"
            _warn("mainspring.jobs", "app.call(%r): this program has no such task; did you mean %r?", task, other)

    def specs(self) -> Mapping[str, TaskSpec]:
        """The task specs for a worker, by name and alias."""
        self.import_included()
        return {name: task.spec() for name, task in self._by_name.items()}

    def queues(self) -> tuple[str, ...]:
        """The queues of the tasks, the declared queues, the queues of the routes, and ``default``, sorted.

        A call by name, from a producer that does not know the task, goes to ``default``.
        """
        routes = self._routes()
        own = {routes.queue_for(name, task.declared.options["queue"]) for name, task in self._by_name.items()}
        return tuple(sorted(own.union(routes.queues, self.declared_queues, ("default",))))

    @property
    def weights(self) -> Mapping[str, float]:
        """The weights of the declared queues."""
        return self.declared_queues.weights

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)


def _import_included(name: str) -> None:
    """Import a module that the app includes; an error names the module and says who asked for it."""
    try:
        import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            error.add_note(f"Mainspring imports {name!r}, because the app includes it.")
            raise
        hint = "It is named by Mainspring(include=[...]), app.include(...) or the setting include. Is it on sys.path?"
        raise InvalidOption("include", name, f"cannot be imported: {error}", subject="app", hint=hint) from None
    except Exception as error:
        error.add_note(f"Mainspring imports {name!r}, because the app includes it.")
        raise


def same_source(one: HasFunction, other: HasFunction) -> bool:
    """Whether a function was declared again: its module was run twice (reload, notebook cell, __main__).

    Two functions that one run made are different: from the same lines they have different closures, and from different
    lines of one file the second would replace the first in silence.
    """
    first, second = one.fn, other.fn
    if first is second or (inspect.ismethod(first) and first == second):
        return True
    code, again = _code(first), _code(second)
    if _where(one) != _where(other) or code is None or again is None or code is again:
        return False
    if code.co_name == "<lambda>":
        return code == again
    return code.co_firstlineno == again.co_firstlineno or not _in_one_run(one, other)


def _in_one_run(one: HasFunction, other: HasFunction) -> bool:
    """Whether one run of a file made both functions. False for cells of a notebook and lines of a console, where a
    user defines a function again to change it."""
    home, other_home = _globals(one.fn), _globals(other.fn)
    return home is other_home and one.module_run is other.module_run and naming.runs_from_file(home, _file(one.fn))


def _globals(fn: Callable[..., Any]) -> Mapping[str, Any]:
    found: Mapping[str, Any] = getattr(inspect.unwrap(shape_of(fn)), "__globals__", {})
    return found


def _code(fn: Callable[..., Any]) -> CodeType | None:
    """The code that runs, inside decorators that set ``__wrapped__``."""
    return getattr(inspect.unwrap(shape_of(fn)), "__code__", None)


def _file(fn: Callable[..., Any]) -> str:
    code = _code(fn)
    return "" if code is None else code.co_filename


def _where(task: HasFunction) -> str:
    fn = task.fn
    return f"{getattr(fn, '__module__', None)}.{getattr(fn, '__qualname__', type(fn).__name__)}"


def _place(task: HasFunction) -> str:
    """The function, with its file and line if it has code."""
    code = _code(task.fn)
    return _where(task) if code is None else f"{_where(task)} ({code.co_filename}:{code.co_firstlineno})"
