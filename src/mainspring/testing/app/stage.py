"""Put an app into test mode, and restore it afterwards.

Tasks, hooks, middleware and lifespans that were declared during the test are removed again. Declarations of a module
that was imported for the first time during the test remain, because the module is not imported again.
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
    """One app in test mode, from ``set`` to ``strike``."""

    def __init__(self, app: Mainspring) -> None:
        self._app = app

    def set(self, client: PrivateClient) -> None:
        """Put the app on the private store; refused if it is in test mode already."""
        app = self._app
        app.import_included()  # their tasks belong to the app, although the test imports them
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
        """Restore the app as it was."""
        with _lock:
            for holder, before in zip(self._holders, self._before, strict=True):
                now = vars(holder)
                back = {name: self._undone(value, now.get(name)) for name, value in before.items()}
                now.clear()
                now.update(back)

    def _undone(self, before: Any, now: Any) -> Any:
        """``before``, with the declarations of modules that were imported during the test."""
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
        """Whether the declaration is of a module that was imported during the test."""
        module = getattr(getattr(declared, "fn", declared), "__module__", None)
        return module is not None and module not in self._modules


def _state(holder: object) -> dict[str, Any]:
    """The attributes of an object, with copies of lists and dicts, which are changed in place."""
    return {name: _copied(value) for name, value in vars(holder).items()}


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return list(value) if isinstance(value, list) else value
