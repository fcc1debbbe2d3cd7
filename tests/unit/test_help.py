"""What help() shows: every public name has a docstring, and async versions say what they do."""

from __future__ import annotations

import inspect
import pydoc
import re

import pytest

from mainspring import AsyncTask, Call, Context, Job, Mainspring, Task
from mainspring.jobs.dead import Dead
from mainspring.jobs.manager import Jobs
from mainspring.queues.manager import Queues
from mainspring.schedules.manager import Schedules

CLASSES = (Mainspring, Task, AsyncTask, Call, Job, Context, Jobs, Dead, Queues, Schedules)


PUBLIC: dict[type, str] = {
    Task: "aenqueue aenqueue_many enqueue enqueue_many job options queue s upgrade",
    Call: "aenqueue arguments each enqueue flow options task then undo when",
    Job: "acancel adelete ainfo ajoin alogs aresult aretry arun_now astream awatch awhy cancel created delete id info "
    "join logs result retry run_now stream task watch why",
    Mainspring: "aclose aenqueue_many aopen breaker breakers bulk_task call close dead election enqueue_many flows "
    "include jobs lifespan limiter limits lock locks middleware on open pool queue queues run schedule schedules "
    "semaphore task test worker workers",
}


@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_help_shows_the_public_names_and_no_internal_ones(kind: type) -> None:
    text = pydoc.plain(pydoc.render_doc(kind))
    shown = set(re.findall(r"^ \|  (?:async )?([a-z]\w*)(?:\(| = |$)", text, re.MULTILINE))
    assert shown == set(PUBLIC[kind].split())


def test_completion_of_an_instance_shows_no_internal_names() -> None:
    app = Mainspring("sqlite://")

    @app.task(name="add")
    def add(a: int) -> int:
        return a

    assert {"client", "parts", "hooks"}.isdisjoint(dir(app))
    assert {"enqueue", "name", "fn"} <= set(dir(add))
    assert {"spec", "target", "declared"}.isdisjoint(dir(add))
    assert {"new_job", "target"}.isdisjoint(dir(add.s(1)))


def members(kind: type) -> list[str]:
    """The public methods and properties."""
    named = (each for each in dir(kind) if not each.startswith("_"))
    return [name for name in named if not inspect.ismemberdescriptor(inspect.getattr_static(kind, name))]


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_every_public_name_has_a_docstring(kind: type) -> None:
    assert [name for name in members(kind) if not inspect.getdoc(getattr(kind, name))] == []


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_an_async_version_names_its_twin_and_says_what_it_does(kind: type) -> None:
    for name in members(kind):
        doc = inspect.getdoc(getattr(kind, name)) or ""
        if doc.startswith("Async version of "):
            assert doc.startswith(f"Async version of ``{name[1:]}``"), name
            assert len(doc) > len(f"Async version of ``{name[1:]}``.") + 10, name
