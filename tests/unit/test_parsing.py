"""Threads of a test process that parse source do not disturb each other: see `tests/plugins/parsing.py`."""

from __future__ import annotations

import ast
import gc
import sys
import threading
from typing import Any

SOURCE = "[(a + b) / c + f(x, y, z) for i in range(3)]"


def test_a_thread_that_parses_while_another_does_is_no_error() -> None:
    """The garbage collector runs Python code inside of `ast.parse`. This code lets the other thread parse."""
    go, parsed, stop = threading.Event(), threading.Event(), threading.Event()
    main, injected = threading.get_ident(), 0

    def parse_again() -> None:
        while not stop.is_set():
            go.wait()
            go.clear()
            ast.parse(SOURCE)
            parsed.set()

    def interrupt(phase: str, _: dict[str, Any]) -> None:
        nonlocal injected
        if phase == "start" and threading.get_ident() == main and sys._getframe(1).f_code.co_filename == ast.__file__:
            injected += 1
            parsed.clear()
            go.set()
            parsed.wait(0.01)  # with one thread at a time, the other thread parses after this one

    other = threading.Thread(target=parse_again)
    other.start()
    before = gc.get_threshold()
    gc.callbacks.append(interrupt)
    gc.set_threshold(5)
    try:
        for _ in range(20):
            ast.parse(SOURCE)
    finally:
        gc.set_threshold(*before)
        gc.callbacks.remove(interrupt)
        stop.set()
        go.set()
        other.join()
    assert injected, "the other thread had its turn inside of ast.parse"
