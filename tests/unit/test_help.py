"""What help() shows: every public name has a docstring, and async versions say what they do."""

from __future__ import annotations

import inspect

import pytest

from mainspring import AsyncTask, Call, Context, Job, Mainspring, Task
from mainspring.jobs.dead import Dead
from mainspring.jobs.manager import Jobs
from mainspring.queues.manager import Queues
from mainspring.schedules.manager import Schedules

CLASSES = (Mainspring, Task, AsyncTask, Call, Job, Context, Jobs, Dead, Queues, Schedules)


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
