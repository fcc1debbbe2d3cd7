"""An app's settings: what was given to ``Mainspring(...)``, checked; the URL is looked for on first use."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypedDict

from mainspring import options
from mainspring.discover import default_url
from mainspring.duration import Duration
from mainspring.errors import InvalidOption, NotBuilt, UnknownOption, mask_url
from mainspring.worker.parts import Parts, StoreAddress, WorkerSettings

if TYPE_CHECKING:
    from mainspring.registry import Registry

DURABILITIES = ("full", "normal")


SERVED = frozenset({"sqlite"})
"""Engines that are complete enough for a worker."""

OF_ONE_RUN = frozenset({"processes", "until_empty"})
"""Worker options that belong to a command, not to the app: the supervisor knows no app."""


class Settings(TypedDict, total=False):
    """Keyword arguments of ``Mainspring``: its own, and defaults for its workers."""

    durability: Literal["full", "normal"]
    queues: Sequence[str] | str | None
    async_slots: int
    thread_slots: int
    concurrency: Mapping[str, int]
    lease: Duration
    drain: Duration
    poll: Duration
    sweep: Duration
    grace: Duration


class AppSettings:
    """What one app was told. Immutable by convention."""

    def __init__(
        self, url: str | None, namespace: str, version: str | None, durability: str,
        worker: Mapping[str, Any], declared_in: str | None,
    ) -> None:  # fmt: skip
        self._url = url
        self.declared_in = declared_in
        self.namespace = namespace
        self.version = version
        self.durability = durability
        self.worker = worker

    @classmethod
    def resolve(
        cls, url: str | None, namespace: str, version: str | None, given: Mapping[str, Any], declared_in: str | None
    ) -> AppSettings:
        """Check everything that can be checked without opening anything."""
        subject = "Mainspring"
        worker = {name: value for name, value in given.items() if name != "durability"}
        of_worker = [option.name for option in options.table("worker") if option.name not in OF_ONE_RUN]
        for name in worker:
            if name not in of_worker and name not in options.NOT_BUILT:
                raise UnknownOption(subject, name, [*of_worker, "durability", "url", "namespace", "include", "version"])
        durability = given.get("durability", "full")
        if durability not in DURABILITIES:
            raise InvalidOption("durability", durability, f"is one of {', '.join(DURABILITIES)}", subject=subject)
        if not isinstance(namespace, str) or not re.fullmatch(r"[a-z][a-z0-9_]{0,30}", namespace):
            raise InvalidOption(
                "namespace", namespace, "is not a namespace", subject=subject,
                hint="1 to 31 lower-case letters, digits and _; the first a letter.",
            )  # fmt: skip
        if url is not None:
            from mainspring.stores.connect import engine_of

            engine_of(url)
        options.resolve("worker", worker, subject=subject)
        return cls(url, namespace, version, durability, worker, declared_in)

    @functools.cached_property
    def url(self) -> str:
        return self._url if self._url is not None else default_url(self.declared_in)

    @property
    def shown_url(self) -> str:
        return mask_url(self._url) if self._url is not None else "(default store)"

    @property
    def address(self) -> StoreAddress:
        return StoreAddress(url=self.url, namespace=self.namespace, durability=self.durability)

    def parts(self, tasks: Registry, lifespans: tuple[Callable[..., Any], ...], given: Mapping[str, Any]) -> Parts:
        """A worker of this app: worker options given now go before those of the app."""
        from mainspring.stores.connect import engine_of

        if (engine := engine_of(self.url)) not in SERVED:
            hint = "Jobs can be enqueued there; until workers can run on it, use a SQLite file."
            raise NotBuilt("worker", engine, hint=hint)
        specs = tasks.specs()
        resolved = options.resolve("worker", {**self.worker, **given}, subject="worker")
        resolved["queues"] = resolved["queues"] or tasks.queues()
        return Parts(self.address, specs, WorkerSettings(**resolved), lifespans, self.version or "")
