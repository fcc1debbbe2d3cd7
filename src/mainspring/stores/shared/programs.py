"""The programs of a store: a small document for each app whose workers have run there, with the names of its tasks.

A worker writes the document when it starts. A producer reads the documents once, after its first enqueue, to notice
that the store belongs to another program: two projects with the same ``redis://localhost`` would mix their jobs. A
program is foreign if no document has its name and no document names one of its tasks. So a renamed program gets no
warning, and neither does a producer that calls tasks of another project by name.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from mainspring.common.text import describe_same_function
from mainspring.stores.records import Document

PROGRAMS = "program"
"""The kind of these documents."""
_MAX_TASKS = 500
"""The number of task names in a document; a program with more tasks is never foreign to others."""


class StoredProgram(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is stored about a program."""

    tasks: tuple[str, ...] = ()
    more: bool = False


def describe_program(tasks: Collection[str]) -> bytes:
    """The content of the document of a program with these tasks."""
    return msgspec.json.encode(StoredProgram(tuple(sorted(tasks)[:_MAX_TASKS]), len(tasks) > _MAX_TASKS))


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


def _read(doc: Document) -> StoredProgram | None:
    """None if a later version has written it."""
    try:
        return msgspec.json.decode(doc.data, type=StoredProgram)
    except msgspec.DecodeError:
        return None
