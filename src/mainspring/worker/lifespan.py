"""Lifespans: what a process sets up before its first job and cleans up after its last.

A lifespan is a generator function, ``def`` or ``async def``, without parameters. The code before its ``yield`` runs
before the first claim, the code after it when the worker stops. The value that it yields is ``ctx.state``; with several
lifespans, ``ctx.state`` has one attribute (or item) for each, named like the function. Lifespans are cleaned up
in reverse order. Each has its own time limit; if one fails, the failure is logged and the others still run.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from types import SimpleNamespace
from typing import Any

from mainspring.errors import InvalidOption

log = logging.getLogger("mainspring.worker")

_END = object()


class LifespanState(SimpleNamespace):
    """``ctx.state`` with several lifespans: ``ctx.state.database`` or ``ctx.state["database"]``."""

    def __getitem__(self, name: str) -> Any:
        if name in vars(self):
            return vars(self)[name]
        raise KeyError(self._unknown(name))

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(self._unknown(name))

    def _unknown(self, name: str) -> str:
        names = ", ".join(vars(self))
        return f"ctx.state has one value for each lifespan, by the name of its function: {names}; there is no {name!r}"


class Lifespans:
    """Runs the lifespans of one process."""

    def __init__(self, functions: Sequence[Callable[..., Any]], limit: float) -> None:
        self._functions = tuple(functions)
        self._limit = limit
        self._open: list[tuple[str, AsyncGenerator[Any, None] | Generator[Any, None, None]]] = []
        for fn in self._functions:
            if not (inspect.isgeneratorfunction(fn) or inspect.isasyncgenfunction(fn)):
                raise InvalidOption(
                    "lifespan",
                    fn,
                    "must be a generator function, def or async def",
                    hint="Write: set up, yield, clean up.",
                )
            if needed := required_parameters(fn):
                raise InvalidOption(
                    "lifespan", fn, f"must have no parameters; it needs {', '.join(needed)}",
                    hint="Use the app and the settings of its module in the function.",
                )  # fmt: skip

    async def start(self) -> Any:
        """Start the lifespans in order; returns the state. If one fails, cleans up the earlier ones and raises."""
        values: dict[str, Any] = {}
        try:
            for fn in self._functions:
                span = fn()
                value = await _advance(span)
                if value is _END:
                    raise InvalidOption("lifespan", fn, "ended without a yield", hint="Write: set up, yield, clean up.")
                self._open.append((_name(fn), span))
                values[_name(fn)] = value
        except BaseException:
            await self.stop()
            raise
        if len(values) == 1:
            return next(iter(values.values()))
        return LifespanState(**values) if values else None

    async def stop(self) -> None:
        """Clean up in reverse order. A failure of a lifespan is logged, not raised. Idempotent."""
        while self._open:
            name, span = self._open.pop()
            try:
                async with asyncio.timeout(self._limit):
                    rest = await _advance(span)
                if rest is not _END:
                    log.error("lifespan %s yielded twice; the code after its second yield is not run", name)
            except TimeoutError:
                log.error(
                    "lifespan %s did not clean up within %.1f s; the worker does not wait any longer", name, self._limit
                )
            except Exception:
                log.exception("lifespan %s failed to clean up", name)


def required_parameters(fn: Callable[..., Any]) -> list[str]:
    """The names of the parameters without a default."""
    found = inspect.signature(fn).parameters.values()
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [each.name for each in found if each.default is each.empty and each.kind not in optional]


def _name(fn: Callable[..., Any]) -> str:
    return str(getattr(fn, "__name__", type(fn).__name__))


async def _advance(span: AsyncGenerator[Any, None] | Generator[Any, None, None]) -> Any:
    if isinstance(span, AsyncGenerator):
        return await anext(span, _END)
    return await _in_thread(lambda: next(span, _END))


async def _in_thread(fn: Callable[[], Any]) -> Any:
    """Call the function in a daemon thread. The loop's own executor would be joined at exit, even if it hangs."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Any] = loop.create_future()

    def settle(value: Any, error: BaseException | None) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)

    def call() -> None:
        value, problem = None, None
        try:
            value = fn()
        except Exception as error:  # noqa: BLE001 - passed on to the loop
            problem = error
        except BaseException as error:  # noqa: BLE001 - SystemExit must not end the loop
            problem = RuntimeError(f"lifespan raised {error!r}")
        try:
            loop.call_soon_threadsafe(settle, value, problem)
        except RuntimeError:  # the loop is closed
            return

    threading.Thread(target=call, name="mainspring-lifespan", daemon=True).start()
    return await future
