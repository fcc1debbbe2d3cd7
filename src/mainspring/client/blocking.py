"""Blocking methods: one background event loop per process runs the async methods for blocking callers.

Every method that uses the store exists twice: ``ax`` is awaited, ``x`` blocks. Only ``ax`` is written; ``x`` is made
from it with :func:`twin`, or with :func:`iterator_twin` if the method returns an iterator. The loop starts when a
blocking method is called for the first time. Enqueueing does not use the loop: it runs in the calling thread.

``asyncio`` is imported when the loop is used: a program that only declares its tasks does not need it.
"""

from __future__ import annotations

import inspect
import os
import sys
import threading
import warnings
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import aclosing
from functools import update_wrapper
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeAlias, TypeVar, cast

from mainspring.common import job_threads
from mainspring.errors import WouldBlockLoop

if TYPE_CHECKING:
    import asyncio
    from concurrent.futures import Future

P = ParamSpec("P")
R = TypeVar("R")

BlockingCall: TypeAlias = Callable[[], Coroutine[Any, Any, R]] | Coroutine[Any, Any, R]
"""What a blocking method runs: a function that makes a coroutine, or a coroutine."""

_SLICE = 0.25  # most seconds of one uninterrupted wait in the thread of a job


# ---- twins -------------------------------------------------------------------------------------------


def twin(method: Callable[P, Coroutine[Any, Any, R]]) -> Callable[P, R]:
    """Make the blocking method ``x`` of the async method ``ax``, with the same parameters and docstring.

    The class says in ``_PATH`` how users write its objects (``"app.jobs"``). ``WouldBlockLoop`` names the method with
    it: ``app.jobs.get() would block the running event loop. Use: await app.jobs.aget(...)``.

    >>> class Greeter:
    ...     _PATH = "greeter"
    ...     async def agreet(self, name: str = "you") -> str:
    ...         "Return a greeting."
    ...         return f"Hello, {name}"
    ...     greet = twin(agreet)
    >>> Greeter().greet("Ada")
    'Hello, Ada'
    """
    name = method.__name__[1:]

    def call(self: Any, /, *args: Any, **kwargs: Any) -> R:
        def made() -> Coroutine[Any, Any, R]:
            try:
                return cast("Coroutine[Any, Any, R]", cast("Any", method)(self, *args, **kwargs))
            except TypeError as error:  # of the arguments: the body of a coroutine has not begun
                raise TypeError(str(error).replace(f".a{name}()", f".{name}()")) from None

        return run(f"{self._PATH}.{name}", made)

    return cast("Callable[P, R]", _named(call, method))


def iterator_twin(method: Callable[P, AsyncIterator[R]]) -> Callable[P, Iterator[R]]:
    """Make the blocking iterator ``x`` of the method ``ax``, which returns an :class:`ItemStream`."""
    name = method.__name__[1:]

    def call(self: Any, /, *args: Any, **kwargs: Any) -> Iterator[R]:
        return each(f"{self._PATH}.{name}", cast("Any", method)(self, *args, **kwargs).batches)

    twin = _named(call, method)
    wanted = inspect.signature(method)
    returns = str(wanted.return_annotation).replace("AsyncIterator[", "Iterator[")
    cast("Any", twin).__signature__ = wanted.replace(return_annotation=returns)
    return cast("Callable[P, Iterator[R]]", twin)


def _named(call: Callable[..., Any], method: Callable[..., Any]) -> Callable[..., Any]:
    """Give the blocking function the name, signature and docstring of its twin; the twin's docstring names both."""
    assert method.__name__.startswith("a"), f"{method.__name__} must be named a + the name of the blocking method"
    name = method.__name__[1:]
    update_wrapper(call, method)  # `inspect.signature` and `help` find the signature by `__wrapped__`
    call.__name__ = name
    call.__qualname__ = f"{method.__qualname__.rpartition('.')[0]}.{name}"
    method.__doc__ = _with_first_line(f"Async version of ``{name}``.", method.__doc__ or "")
    return call


def _with_first_line(line: str, doc: str) -> str:
    """The docstring with a line before it, indented so that `inspect.cleandoc` removes the indentation again."""
    indents = [len(each) - len(each.lstrip()) for each in doc.split("\n")[1:] if each.strip()]
    return f"{line}\n\n{' ' * min(indents, default=0)}{doc}" if doc else line


# ---- the background loop -----------------------------------------------------------------------------


class _Background:
    """The event loop of this process and the thread that runs it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is not None:
            return self._loop
        import asyncio

        with self._lock:
            if self._loop is None:
                loop = asyncio.new_event_loop()
                threading.Thread(target=loop.run_forever, name="mainspring-sync", daemon=True).start()
                self._loop = loop  # last: Ctrl-C before this line must not leave a loop that does not run
            return self._loop

    def after_fork(self) -> None:
        """Forget the parent's loop in a forked child: its thread does not exist there. The loop is never closed."""
        _inherited.append(self._loop)
        self.__init__()  # type: ignore[misc]  # reset in place: other modules hold this object


_inherited: list[object] = []
_background = _Background()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_background.after_fork)


def run(verb: str, call: BlockingCall[R]) -> R:
    """Run a coroutine to its end from blocking code. The error ``WouldBlockLoop`` shows ``verb``.

    ``call`` makes the coroutine, or is the coroutine. A coroutine that is made on the background loop, where no Ctrl-C
    arrives, is always awaited. Wherever Ctrl-C interrupts the caller, giving up ends the call or keeps it from
    starting: no task is left.
    """
    if in_loop() and not in_notebook():
        _discard(call)
        raise WouldBlockLoop(verb)
    waiting = _BackgroundCall(call)
    try:
        return waiting.run(_background.loop)
    except BaseException:
        waiting.give_up()  # Ctrl-C during the wait ends the call too
        raise


class _BackgroundCall(Generic[R]):
    """A call on the background loop, and the thread that waits for it.

    Both threads share a :class:`~mainspring.common.job_threads.Latch` only: a signal handler of the program may raise
    in the waiting thread at any moment. ``concurrent.futures.Future`` has a lock that such an exception can leave
    acquired, and then the loop would wait for it for ever.
    """

    def __init__(self, call: BlockingCall[R]) -> None:
        self._call = call
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[R] | None = None
        self._error: BaseException | None = None
        self._given_up = False
        self._ended = job_threads.Latch()

    def run(self, loop: asyncio.AbstractEventLoop) -> R:
        """Submit the call and wait for its result."""
        from asyncio import CancelledError
        from concurrent.futures import CancelledError as CancelledCall

        self._loop = loop
        loop.call_soon_threadsafe(self._start)
        if job_threads.here():
            # A time limit or a cancel order raises an exception, which the interpreter cannot raise in one long wait.
            while not self._ended.wait(_SLICE):
                pass
        else:
            self._ended.wait()
        task, error = self._task, self._error
        self._task = self._error = None
        try:
            if task is None:
                raise error or RuntimeError("the call was not started")
            return task.result()
        except CancelledError:
            raise CancelledCall from None
        finally:
            del task, error  # else the traceback of an error would hold the error

    def give_up(self) -> None:
        """Cancel the call, unless it has ended, or keep it from starting."""
        self._given_up = True
        if self._loop is None:
            _discard(self._call)
        else:
            self._loop.call_soon_threadsafe(self._cancel)

    # ---- on the loop -------------------------------------------------------------------------

    def _start(self) -> None:
        """Make the coroutine and run it, in the context of the caller."""
        if self._given_up:
            _discard(self._call)
            return
        try:
            call = self._call
            assert self._loop is not None
            self._task = self._loop.create_task(call() if callable(call) else call)
        except BaseException as error:  # noqa: BLE001 - the call does not fit the signature: an error of the caller
            self._error = error
            self._ended.set()
        else:
            self._task.add_done_callback(self._end)

    def _cancel(self) -> None:
        if self._task is None:
            _discard(self._call)
        else:
            self._task.cancel()

    def _end(self, task: asyncio.Task[R]) -> None:
        if self._given_up and not task.cancelled():
            task.exception()  # retrieved: no thread waits for it
        self._ended.set()


def _discard(call: BlockingCall[Any]) -> None:
    """The call will not start."""
    if not callable(call):
        call.close()


def spawn(call: Coroutine[Any, Any, R]) -> Future[R]:
    """Start ``call`` on the background loop and return its future; cancel the future to end the call."""
    import asyncio

    return asyncio.run_coroutine_threadsafe(call, _background.loop)


class ItemStream(AsyncIterator[R]):
    """The items of an async generator of batches, one by one: what a method with an iterator twin returns."""

    def __init__(self, batches: AsyncGenerator[Sequence[R]]) -> None:
        self.batches = batches
        """The batches, for the blocking twin: it asks the loop once for each batch."""
        self._items = _items_of(batches)

    def __anext__(self) -> Awaitable[R]:
        return self._items.__anext__()

    async def aclose(self) -> None:
        """End the iteration and the generator of the batches."""
        await self._items.aclose()
        await self.batches.aclose()


async def _items_of(batches: AsyncGenerator[Sequence[R]]) -> AsyncGenerator[R]:
    async with aclosing(batches):
        async for batch in batches:
            for item in batch:
                yield item


def each(verb: str, batches: AsyncGenerator[Sequence[R]]) -> Iterator[R]:
    """Iterate over the items of ``batches`` from blocking code, asking the loop once for each batch.

    Between two batches nothing runs. An iterator that is not read to its end closes its async twin when it is closed
    or collected, without waiting for it.
    """
    _refuse_loop(verb)
    return _each(verb, batches)


def _each(verb: str, batches: AsyncGenerator[Sequence[R]]) -> Iterator[R]:
    while (batch := run(verb, lambda: _next_batch(batches))) is not None:
        try:
            yield from batch
            _refuse_loop(verb)
        except BaseException:  # the caller closes the iterator before its end
            _background.loop.call_soon_threadsafe(_close, batches)
            raise


def _close(batches: AsyncGenerator[Any]) -> None:
    closing = _background.loop.create_task(_aclose(batches))
    _closing.add(closing)  # the loop holds tasks weakly
    closing.add_done_callback(_closing.discard)


async def _aclose(batches: AsyncGenerator[Any]) -> None:
    await batches.aclose()


_closing: set[asyncio.Future[None]] = set()


def _refuse_loop(verb: str) -> None:
    if in_loop() and not in_notebook():
        error = WouldBlockLoop(verb)
        error.hint = f"Use: async for ... in {error.twin}(...)"
        raise error


async def _next_batch(batches: AsyncGenerator[Sequence[R]]) -> Sequence[R] | None:
    return await anext(batches, None)


# ---- inside a running loop ---------------------------------------------------------------------------


def in_loop() -> bool:
    """Whether the calling thread is inside a running event loop."""
    # Without asyncio there is no loop. The attribute is missing while another thread imports asyncio.
    # asyncio.get_running_loop() raises: three times the cost per enqueue.
    running = getattr(sys.modules.get("asyncio"), "_get_running_loop", None)
    return running is not None and running() is not None


def warn_blocking(verb: str) -> None:
    """Warn, once per place in the caller's code, that the blocking method stops the running event loop."""
    if not in_notebook():
        text = f"{verb}() blocks the running event loop; use: await a{verb}(...)"
        warnings.warn(text, stacklevel=_outside())


def _outside() -> int:
    """The stack level of the first caller outside of this package."""
    level, frame = 2, sys._getframe(2)  # noqa: SLF001  # the only way to walk the stack without its cost
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith("mainspring."):
        level, frame = level + 1, frame.f_back
    return level


def in_notebook() -> bool:
    """Whether this is IPython, which runs a loop in every cell: there a user who blocks means to block."""
    return "IPython" in sys.modules and "get_ipython" in dir(__import__("builtins"))
