"""The errors of servers for tests."""

from __future__ import annotations


class EngineMissing(RuntimeError):
    """This kind of server is not installed; the text names the command that fixes it.

    ``variable`` is where tests take a URL from instead.
    """

    def __init__(self, what: str, fix: str, variable: str = "") -> None:
        super().__init__(f"{what}. Fix: {fix}" + (f"   (or set {variable})" if variable else ""))
        self.what = what
        self.fix = fix


class ServerFailed(RuntimeError):
    """A server did not start; the text ends with the last lines of its log."""


class NotOurs(RuntimeError):
    """A server given by URL cannot be stopped, killed or frozen; ask with ``own=True``."""
