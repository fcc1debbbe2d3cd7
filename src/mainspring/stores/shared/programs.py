"""The programs of a store: a small document for each app whose workers have run there, with the names of its tasks.

A worker writes the document when it starts. A producer reads the documents once, after its first enqueue, to notice
that the store belongs to another program: two projects with the same ``redis://localhost`` would mix their jobs. A
program is foreign if no document has its name and no document names one of its tasks. So a renamed program gets no
warning, and neither does a producer that calls tasks of another project by name.

A document also has a hash of the source of each task's function. Two programs with a task of one name and with
different functions run each other's jobs, so a worker warns of them. Programs that share a library have the same
source.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

import msgspec

from mainspring.common.text import describe_same_function
from mainspring.stores.records import Document

PROGRAMS = "program"
"""The kind of these documents."""
_MAX_TASKS = 500
"""The number of task names in a document; a program with more tasks is never foreign to others."""


RECENT = 7 * 24 * 3_600_000_000
"""Microseconds: a program whose workers have not started for this long is not compared."""
REFRESH = RECENT // 7
"""Microseconds after which a worker that starts writes an unchanged document again. Its version is the time."""
_SHOWN = 3


class StoredProgram(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored about a program."""

    tasks: tuple[str, ...] = ()
    more: bool = False
    sources: dict[str, str] = {}
    """A hash of the source of a task's function, by task."""


def describe_program(tasks: Mapping[str, str]) -> bytes:
    """The content of the document of a program with these tasks, each with a hash of its source or an empty text."""
    names = sorted(tasks)[:_MAX_TASKS]
    sources = {name: tasks[name] for name in names if tasks[name]}
    return msgspec.json.encode(StoredProgram(tuple(names), len(tasks) > _MAX_TASKS, sources))


def describe_same_names(
    name: str, tasks: Mapping[str, str], documents: Sequence[Document], now: int, *, url: str, namespace: str
) -> str:
    """The warning for tasks of this program that another program has as well, with another function; empty if there
    are none."""
    found: dict[str, str] = {}
    for doc in documents:
        stored = _read(doc)
        if doc.name != name and stored is not None and now - doc.version < RECENT:
            both = [task for task, source in stored.sources.items() if tasks.get(task) not in (None, "", source)]
            found |= dict.fromkeys(both, doc.name)
    if not found:
        return ""
    shown = ", ".join(f"{task!r} (app {found[task]!r})" for task in sorted(found)[:_SHOWN])
    more = f" and {len(found) - _SHOWN} more" if len(found) > _SHOWN else ""
    return (
        f"other programs on this store have tasks of the same name with another function: {shown}{more}; app {name!r} "
        f"and they run each other's jobs: {url} (namespace {namespace!r}). Use namespace=... or another database, "
        'or give the tasks different names: @app.task(name="..."), or put the modules into packages'
    )


def find_foreign(name: str, tasks: Collection[str], documents: Sequence[Document]) -> list[str]:
    """The names of the programs of a store, if all of them are foreign to this program; else nothing."""
    for doc in documents:
        stored = _read(doc)
        if doc.name == name or stored is None or stored.more or not set(stored.tasks).isdisjoint(tasks):
            return []
    return [doc.name for doc in documents]


def describe_foreign(
    name: str, tasks: Collection[str], documents: Sequence[Document], *, url: str, namespace: str
) -> str:
    """The warning for a store of other programs; empty if the store is not foreign to this program."""
    found = find_foreign(name, tasks, documents)
    if not found:
        return ""
    others = ", ".join(repr(each) for each in found[:5])
    stored = {task for doc in documents if (read := _read(doc)) is not None for task in read.tasks}
    advice = "if that is not intended, use namespace=... or another database"
    for task in sorted(tasks):
        advice = describe_same_function(task, stored) or advice
    return (
        f"this store holds jobs of app{'s' if len(found) > 1 else ''} {others}, and none of app {name!r}: {url} "
        f"(namespace {namespace!r}); {advice}"
    )


def tasks_of_programs(documents: Sequence[Document]) -> frozenset[str] | None:
    """The tasks of all programs of a store; None if a document does not name all of them."""
    programs = [_read(doc) for doc in documents]
    if any(each is None or each.more for each in programs):
        return None
    return frozenset(task for each in programs if each is not None for task in each.tasks)


def _read(doc: Document) -> StoredProgram | None:
    """None if a later version has written it."""
    try:
        return msgspec.json.decode(doc.data, type=StoredProgram)
    except msgspec.DecodeError:
        return None
