"""What a mutation is."""

from __future__ import annotations

from typing import NamedTuple


class Patch(NamedTuple):
    """Replace ``old`` by ``new`` in a file of the engine; ``old`` stands there once, or ``times``."""

    file: str
    old: str
    new: str
    times: int = 1


class Mutation(NamedTuple):
    """A planted fault: the promise that it breaks, and the tests of the contract that must notice."""

    name: str
    promise: str
    tests: str
    """Modules of the contract, separated by spaces."""
    patches: tuple[Patch, ...]


def mutation(
    name: str, promise: str, tests: str, *patches: tuple[str, str, str] | tuple[str, str, str, int]
) -> Mutation:
    return Mutation(name, promise, tests, tuple(Patch(*patch) for patch in patches))
