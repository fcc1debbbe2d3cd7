"""What a test puts in place of an app's own things, and how everything is put back.

Undone is what was declared on the app meanwhile: tasks, hooks, middleware, lifespans. Only what a
module declared that was imported for the first time meanwhile stays: it would never come again.
"""

from __future__ import annotations

import copy
import sys
import threading
from typing import TYPE_CHECKING, Any

from mainspring.errors import InsideTest
from mainspring.testing.app.client import PrivateClient

if TYPE_CHECKING:
    from mainspring.app import Mainspring

_lock = threading.Lock()


class Stage:
    """One app, from the raising of the curtain to its fall."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def set(self, client: PrivateClient) -> None:
        """Put the app on the private store; refused while it is on one."""
        app = self._app
        app.import_included()  # their tasks belong to the app, whoever imports them first
        with _lock:
            if isinstance(vars(app).get("_client"), PrivateClient):
                raise InsideTest(
                    f"{app!r} is in test mode already",
                    hint="One app.test() at a time for each app: leave the outer `with` first, or use its TestApp.",
                )
            self._modules = set(sys.modules)
            self._holders = (app, app.tasks, app.hooks)
            self._before = [_state(holder) for holder in self._holders]
            settings = copy.copy(app.settings)
            vars(settings).update(_state(app.settings))
            settings.use(client.address)
            vars(app).update(_client=client, settings=settings)

    def strike(self) -> None:
        """Put everything back as it was."""
        with _lock:
            for holder, before in zip(self._holders, self._before, strict=True):
                now = vars(holder)
                back = {name: self._undone(value, now.get(name)) for name, value in before.items()}
                now.clear()
                now.update(back)

    def _undone(self, before: Any, now: Any) -> Any:
        """``before``, with what came by an import of a new module."""
        if isinstance(before, dict) and isinstance(now, dict):
            merged = {name: self._undone(value, now.get(name)) for name, value in before.items()}
            for name in now.keys() - before.keys():
                kept = self._undone([], now[name]) if isinstance(now[name], list) else now[name]
                if kept if isinstance(kept, list) else self._imported(kept):
                    merged[name] = kept
            return merged
        if isinstance(before, list) and isinstance(now, list):
            known = {id(each) for each in before}
            return before + [each for each in now if id(each) not in known and self._imported(each)]
        return before

    def _imported(self, declared: Any) -> bool:
        """Whether it is of a module that was not there when the test began."""
        module = getattr(getattr(declared, "fn", declared), "__module__", None)
        return module is not None and module not in self._modules


def _state(holder: object) -> dict[str, Any]:
    """The attributes of an object; its lists and dicts as copies, for they are changed in place."""
    return {name: _copied(value) for name, value in vars(holder).items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return list(value) if isinstance(value, list) else value
