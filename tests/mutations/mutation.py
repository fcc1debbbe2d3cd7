"""A planted fault, and the patches that plant it."""

from __future__ import annotations

from typing import NamedTuple


class Patch(NamedTuple):
    """Replace ``old`` by ``new`` in a file. ``old`` occurs ``times`` times. ``file`` is relative to the engine."""

    file: str
    old: str
    new: str
    times: int = 1


class Mutation(NamedTuple):
    """A planted fault: the promise that it breaks, and the contract modules of which one must fail."""

    name: str
    promise: str
    tests: str
    """Modules of the contract, separated by spaces."""
    patches: tuple[Patch, ...]


def mutation(
    name: str, promise: str, tests: str, *patches: tuple[str, str, str] | tuple[str, str, str, int]
) -> Mutation:
    return Mutation(name, promise, tests, tuple(Patch(*patch) for patch in patches))
