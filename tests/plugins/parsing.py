"""Pytest plugin: one thread of a test process parses source at a time.

Python 3.11.0 to 3.11.7 count the depth of a new syntax tree once for the whole process (python/cpython#106905). While
`ast.parse` makes the tree, the garbage collector may let another thread run. If that thread calls `ast.parse` too, one
of them raises `SystemError: AST constructor recursion depth mismatch`. In a test process the main thread parses for
pytest and hypothesis, and a thread of a worker parses the lines of a traceback to mark the place of the error
(`traceback` ignores an error there).
"""

from __future__ import annotations

import ast
import os
import sys
import threading
from functools import wraps
from typing import Any

PARSES_SAFELY = sys.version_info >= (3, 11, 8)

_lock = threading.RLock()


def _one_at_a_time(parse: Any) -> Any:
    @wraps(parse)
    def locked(*args: Any, **kwargs: Any) -> Any:
        with _lock:
            return parse(*args, **kwargs)

    return locked


def _new_lock() -> None:
    """In a forked child: the thread that had the lock does not exist there."""
    global _lock  # noqa: PLW0603 - the wrapper reads it
    _lock = threading.RLock()


if not PARSES_SAFELY:
    ast.parse = _one_at_a_time(ast.parse)
    os.register_at_fork(after_in_child=_new_lock)
