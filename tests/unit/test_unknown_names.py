"""Names that Mainspring does not have: a sentence says the name here, or what to do until the name is built."""

from __future__ import annotations

import copy
import inspect
import pickle
import re
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from click.testing import CliRunner

import mainspring
from mainspring import AsyncContext, AsyncTask, Call, Context, Flow, Job, Mainspring, Task
from mainspring.cli import cli
from mainspring.common.foreign_names import FOREIGN, LATER
from mainspring.errors import (
    NotBuilt,
    NotBuiltAttribute,
    NotBuiltImport,
    UnknownAttribute,
    UnknownImport,
    UnknownOption,
)
from mainspring.jobs.dead import Dead
from mainspring.jobs.manager import Jobs
from mainspring.options.table import options_for
from mainspring.queues.manager import Queues
from mainspring.schedules.manager import Schedules
from mainspring.settings.table import TABLE
from mainspring.states import State
from mainspring.worker.manager import Workers

CLASSES: dict[str, type] = {
    "Mainspring": Mainspring, "BaseTask": Task, "Call": Call, "Flow": Flow, "Job": Job, "Context": Context,
    "Jobs": Jobs, "Dead": Dead, "Queues": Queues, "Schedules": Schedules, "Workers": Workers,
}  # fmt: skip
package: Any = mainspring
ID = "01a1e142-c0dc-7248-9e5f-e502c01970de"


def local(kind: type[Context]) -> Any:
    return kind.local("add")


@pytest.fixture
def app() -> Any:
    return Mainspring("sqlite://")


@pytest.fixture
def add(app: Any) -> Any:
    @app.task(name="add")
    def add(a: int, b: int = 1) -> int:
        return a + b

    return add


@pytest.mark.parametrize(
    ("use", "says"),
    [
        (
            lambda app, add: add.delay(1),
            r"'Task' object has no attribute 'delay'\n  Celery's .delay\(...\) is .enqueue",
        ),
        (lambda app, add: add.apply_async((1,), countdown=60), r"is .options\(delay=60\).enqueue\(\*args\) here"),
        (lambda app, add: add.send(1), r"Dramatiq's .send\(...\) is .enqueue\(...\) here"),
        (lambda app, add: add.kiq(1), r"Taskiq's .kiq\(...\) is await .aenqueue"),
        (lambda app, add: add.si(1), r"Celery's .si\(...\) is .s\(...\) here"),
        (lambda app, add: add.enqeue(1), "did you mean 'enqueue'"),
        (lambda app, add: add.s(1).set(queue="a"), r"Celery's .set\(...\) is .options\(...\) here"),
        (lambda app, add: add.job(ID).get(), r"Celery's .get\(timeout=10\) is .result\(timeout=10\) here"),
        (lambda app, add: add.job(ID).state, r"'Job' object has no attribute 'state'\n  .*job.info\(\).state"),
        (lambda app, add: add.job(ID).status, r"Attributes do no I/O: job.info\(\).state"),
        (lambda app, add: app.send_task("add", (1,)), r"is app.call\(name, ...\).enqueue\(\) here"),
        (lambda app, add: app.add_periodic_task(10, add), r"@app.schedule"),
        (lambda app, add: app.jobs.filter(state="dead"), r"Use app.jobs.list\(state=.dead."),
        (lambda app, add: app.schedules.add("x"), r"Use app.schedules.put"),
        (lambda app, add: local(Context).request.id, r"self.request.id is ctx.job_id here"),
        (lambda app, add: local(AsyncContext).update_state(), r"ctx.progress\(done, total"),
        (lambda app, add: package.shared_task, r"module 'mainspring' .*\n  Celery's @shared_task is @tasks.task"),
        (lambda app, add: package.Mainsprin, "did you mean 'Mainspring'"),
    ],
)
def test_an_attribute_of_another_library_says_the_name_here(app: Any, add: Any, use: Any, says: str) -> None:
    with pytest.raises(UnknownAttribute, match=f"(?s){says}") as caught:
        use(app, add)
    assert isinstance(caught.value, AttributeError)
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    assert pickle.loads(pickle.dumps(caught.value)).name == caught.value.name


@pytest.mark.parametrize(
    ("use", "name"),
    [
        (lambda app, add: app.pipeline("etl"), "pipeline"),
        (lambda app, add: app.aemit("paid", "7"), "aemit"),
        (lambda app, add: app.health, "health"),
        (lambda app, add: app.metrics, "metrics"),
        (lambda app, add: app.asgi(), "asgi"),
        (lambda app, add: app.workers.astop("w"), "astop"),
        (lambda app, add: app.sweep(add), "sweep"),
        (lambda app, add: local(Context).step("a", add), "step"),
        (lambda app, add: package.Sweep, "Sweep"),
    ],
)
def test_an_attribute_of_a_later_release_says_what_to_do_until_then(app: Any, add: Any, use: Any, name: str) -> None:
    with pytest.raises(NotBuiltAttribute, match=f"{name!r} is not built yet\n  Until ") as caught:
        use(app, add)
    assert isinstance(caught.value, NotBuilt)
    assert pickle.loads(pickle.dumps(caught.value)).name == name


@pytest.mark.parametrize("name", ["sweep", "Sweep", "Pipeline"])
def test_an_import_of_a_later_release_is_not_built(name: str) -> None:
    with pytest.raises(NotBuiltImport, match=f"mainspring: '{name}' is not built yet\n  Until ") as caught:
        exec(f"from mainspring import {name}")  # the statement is the test
    assert isinstance(caught.value, (NotBuilt, ImportError))
    assert not hasattr(mainspring, name)


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("Celery", r"cannot import name 'Celery' from 'mainspring'\n  Celery\(...\) is Mainspring\(url\) here"),
        ("shared_task", "@tasks.task here"),
        ("Mainsprin", "from 'mainspring'; did you mean 'Mainspring'"),
    ],
)
def test_an_import_of_another_library_says_the_name_here(name: str, says: str) -> None:
    with pytest.raises(UnknownImport, match=says) as caught:
        exec(f"from mainspring import {name}")  # the statement is the test
    assert isinstance(caught.value, ImportError)


def test_modules_of_the_package_are_still_imported() -> None:
    code = "from mainspring import testing, cli; import mainspring.demo; print(testing.__name__, cli.__name__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["mainspring.testing", "mainspring.cli"]


def test_the_table_is_loaded_only_when_an_unknown_name_is_used() -> None:
    code = """
import sys, mainspring
app = mainspring.Mainspring("sqlite://")
@app.task(name="add")
def add(a: int) -> int: return a
add.s(1); add.options(queue="email")
print("mainspring.common.foreign_names" in sys.modules)
hasattr(add, "__wrapped_by__"); hasattr(app, "_ipython_display_")
print("mainspring.common.foreign_names" in sys.modules)
hasattr(add, "delay")
print("mainspring.common.foreign_names" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


@pytest.mark.parametrize(
    ("declare", "says"),
    [
        (
            lambda app, add: app.task(acks_late=True),
            r"'acks_late' does not exist\n  Celery's acks_late=True is the def",
        ),
        (lambda app, add: app.task(rate_limit="100/m"), r'limit=Rate\(100, per="1m"\) here'),
        (lambda app, add: app.task(bind=True), "Annotate the first parameter"),
        (lambda app, add: app.task(max_retries=3), "max_retries= is retries= here"),
        (lambda app, add: app.task(cron="0 3 * * *"), r"@app.schedule\(cron="),
        (lambda app, add: app.task(every="10m"), r"@app.schedule\(every="),
        (lambda app, add: add.options(countdown=60), r"countdown=60 is delay=60 here"),
        (lambda app, add: add.options(eta=None), r"eta=when is run_at=when here"),
        (lambda app, add: add.s(1).options(task_id="7"), r"task_id= is key= here"),
        (lambda app, add: app.worker(max_tasks_per_child=1), "restart the worker"),
        (lambda app, add: package.Mainspring(broker="redis://"), "A broker is not needed: url= names the store"),
    ],
)
def test_an_option_of_another_library_says_the_name_here(
    app: Any, add: Any, declare: Callable[[Any, Any], Any], says: str
) -> None:
    with pytest.raises(UnknownOption, match=says):
        declare(app, add)(add.fn)


@pytest.mark.parametrize("command", ["worker", "dev"])
@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["-P", "solo"], "No such option '-P'.\n  There is one kind of worker: async def runs on its event loop"),
        (["--threads", "4"], "No such option '--threads'.\n  --threads is --thread-slots (-t) here."),
        (["--loglevel=info"], "Celery's --loglevel is --log-level (-l) here."),
        (["-w4"], "Huey's -w 4 is -c 4 for jobs at once in each process here"),
        (["--queue", "a"], "No such option '--queue'. Did you mean '--queues'?"),
    ],
    ids=str,
)
def test_a_flag_of_another_library_s_worker_says_the_flag_here(command: str, flags: list[str], says: str) -> None:
    ran = CliRunner().invoke(cli, [command, "app.py", *flags], prog_name="mainspring")
    assert (ran.exit_code, says in ran.stderr) == (2, True), ran.stderr


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("beat", "No such command 'beat'.\n  Every worker runs schedules: mainspring worker."),
        ("purge", "Use: mainspring queues purge QUEUE."),
        ("metrics", "command: 'metrics' is not built yet\n  Until then: "),
        ("top", "command: 'top' is not built yet\n  Until then: mainspring status --watch"),
        ("web", "command: 'web' is not built yet\n  Until then: "),
        ("statsu", "No such command 'statsu'. Did you mean 'status'?"),
    ],
)
def test_a_command_of_another_library_says_the_command_here(command: str, says: str) -> None:
    done = subprocess.run([sys.executable, "-m", "mainspring", command], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert says in done.stderr, done.stderr
    assert "Traceback" not in done.stderr


def test_protocols_of_python_work_on_objects_with_explained_names(app: Any, add: Any) -> None:
    job, call = add.job(ID), add.s(1)
    for each in (app, add, job, call, local(Context)):
        assert not hasattr(each, "delay")
        assert not hasattr(each, "pipeline")
        assert not hasattr(each, "__no_such_protocol__")
        assert not {"delay", "get", "status", "pipeline", "sweep"} & set(dir(each))
        assert inspect.unwrap(each) is not None
        assert inspect.iscoroutinefunction(each) is False
    assert copy.copy(add) is add
    assert copy.deepcopy(call) is call
    assert str(inspect.signature(add)) == "(a: 'int', b: 'int' = 1) -> 'int'"
    assert "sweep" not in dir(mainspring)


def test_an_attribute_error_inside_a_property_is_not_hidden() -> None:
    class Shop(Mainspring):
        @property
        def prices(self) -> int:
            return self.stock.missing_part  # type: ignore[attr-defined, no-any-return]  # the mistake of the test

        stock = object()

    with pytest.raises(AttributeError, match="missing_part"):
        _ = Shop("sqlite://").prices


# ---- the table -------------------------------------------------------------------------------------


def entries() -> list[tuple[str, str, str]]:
    return [
        (place, name, said)
        for table in (FOREIGN, LATER)
        for place, names in table.items()
        for name, said in names.items()
    ]


def test_no_name_of_the_table_exists() -> None:
    known = {name: set(dir(kind)) for name, kind in CLASSES.items()}
    known["BaseTask"] |= set(dir(AsyncTask))
    known["module"] = set(mainspring.__all__)
    known["option"] = {option.name for scope in ("job", "task") for option in options_for(scope)}
    known["worker option"] = {option.name for option in options_for("worker")}
    known["setting"] = set(TABLE)
    known["worker flag"] = {flag for option in cli.commands["worker"].params for flag in option.opts}
    known["command"] = set(cli.commands)
    known["state"] = set(State)
    assert known.keys() >= FOREIGN.keys() | LATER.keys()
    assert [(place, name) for place, name, _ in entries() if name in known[place]] == []


def test_every_sentence_is_one_line_and_names_what_exists(app: Any, add: Any) -> None:
    objects = {"app": app, "task": add, "job": add.job(ID), "ctx": local(Context)}
    managers = "jobs|dead|queues|schedules|workers|tasks"
    for _, _, said in entries():
        assert said.endswith("."), said
        assert len(said) < 160, said
        assert "\n" not in said, said
        foreign, split, _ = said.partition(" is ")
        ours = said.removeprefix(foreign) if split and "'s " in foreign else said
        for owner, name in re.findall(r"(?<![\w.])(app|task|job|ctx)\.([a-z_]+)(?!\.py)", ours.replace("app.py", "")):
            assert hasattr(objects[owner], name), said
        for manager, method in re.findall(rf"app\.({managers})\.([a-z_]+)", ours):
            assert hasattr(getattr(app, manager), method), said
        for group, command in re.findall(r"(?<![.\w])mainspring ([a-z-]+)(?: ([a-z-]+)\b)?", ours):
            found = cli.commands.get(group)
            assert found is not None, said
            assert not command or command in getattr(found, "commands", {command: None}), said
