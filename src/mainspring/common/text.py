"""Text that every store can keep, text that is cut, and advice about names of tasks."""

from __future__ import annotations

import re
from collections.abc import Iterable


def storable(text: str) -> bool:
    """Whether every store can keep this text and find it again: it has no NUL and no lone surrogate."""
    return text.isprintable() or not re.search("[\0\ud800-\udfff]", text)


def cut(text: str, limit: int) -> str:
    """The text, at most ``limit`` characters long; three dots are the mark of a cut.

    >>> cut("backwards", 7), cut("back", 7)
    ('back...', 'back')
    """
    return text if len(text) <= limit else text[: max(0, limit - 3)] + "..."


def describe_same_function(task: str, known: Iterable[str]) -> str:
    """Advice for a task that is known under another name; empty if no known name fits.

    ``tasks.add`` and ``shop.tasks.add`` are most likely one function, imported from its folder and from its package:
    one name ends with the whole other name. Names without a module do not count.
    """
    for other in sorted(known):
        longer, shorter = (task, other) if len(task) > len(other) else (other, task)
        if "." in shorter and longer.endswith(f".{shorter}"):
            module = longer.rpartition(".")[0]
            return (
                f"{shorter!r} and {longer!r} look like one function, imported under two names: "
                f"import {module} everywhere, and start workers as 'mainspring worker {module}'"
            )
    return ""


def qualified_name(kind: type) -> str:
    """The name of a class as errors of jobs are recorded: ``ValueError``, ``shop.errors.OutOfStock``."""
    module = str(kind.__module__)
    return kind.__qualname__ if module == "builtins" else f"{module}.{kind.__qualname__}"
