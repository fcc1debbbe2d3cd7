"""Fair keys as users declare them: the key of a job, and the share of the claims that each key gets in its queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple, TypeAlias

from mainspring.common.callables import is_async
from mainspring.errors import InvalidOption, did_you_mean
from mainspring.limits.declare import By, key_text, value_at
from mainspring.options import checks
from mainspring.queues.records import FairKey

FairBy: TypeAlias = By
"""The name of an argument, a dotted path into it, or a function that gets the arguments by name."""
FairWeights: TypeAlias = Mapping[str, float] | Callable[[str], float]
"""The weight of each key; 1 for a key that is not named."""


class FairKeys(NamedTuple):
    """How the claims of a queue are shared between the keys of its jobs."""

    queue: str
    by: By
    weights: FairWeights | None

    def check_task(self, task: str, known: Collection[str]) -> None:
        """Refuse a task of the queue that does not have the argument of ``fair_by``."""
        if isinstance(self.by, str) and (name := self.by.partition(".")[0]) not in known:
            why = f"names {name!r}, which is not an argument of task {task!r}{did_you_mean(name, known)}"
            hint = (
                "Use a function for tasks with different arguments: fair_by=lambda tenant_id=None, **others: tenant_id"
            )
            raise InvalidOption("fair_by", self.by, why, subject=self._subject, hint=hint)

    def key_of(self, arguments: Mapping[str, Any], task: str, *, declared: bool) -> FairKey:
        """Return the key and the weight of a job. If the task is not ``declared`` here, an argument may be missing."""
        subject = f"task {task!r} in {self._subject}"
        if not declared and isinstance(self.by, str):
            value = _find_or_none(self.by, arguments)
        else:
            value = value_at(self.by, arguments, "fair_by", subject)
        key = "" if value is None else key_text(value, self.by, "fair_by", subject)
        return FairKey(key, self._weight(key))

    def _weight(self, key: str) -> float:
        if self.weights is None:
            return 1
        if isinstance(self.weights, Mapping):
            return self.weights.get(key, 1)
        try:
            weight = self.weights(key)
        except Exception as error:
            why = f"raised {type(error).__name__} for key {key!r}: {error}"
            raise InvalidOption("fair_weights", self.weights, why, subject=self._subject) from error
        try:
            return checks.weight(weight, "fair_weights")
        except InvalidOption as error:
            raise error.about(f"{self._subject}, key {key!r}") from None

    @property
    def _subject(self) -> str:
        return f"queue {self.queue!r}"


def to_fair_by(value: Any, name: str) -> By | None:
    """Check the option and return it in normal form."""
    if value is None or (isinstance(value, str) and value and all(part.isidentifier() for part in value.split("."))):
        return value
    if not isinstance(value, str) and callable(value) and not is_async(value):
        found: By = value
        return found
    why = "is neither the name of an argument, nor a dotted path, nor a def"
    raise InvalidOption(name, value, why, hint='fair_by="tenant_id", fair_by="user.tenant" or fair_by=function')


def to_fair_weights(value: Any, name: str) -> FairWeights | None:
    """Check the option and return it in normal form."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                hint = 'Keys are text. Write the key of a number as in JSON, for example "7".'
                raise InvalidOption(name, key, "is not text", hint=hint)
        return {key: checks.weight(weight, f"{name}[{key!r}]") for key, weight in value.items()}
    if callable(value) and not is_async(value):
        found: FairWeights = value
        return found
    hint = 'Use fair_weights={"acme": 5}, or a def that gets the key.'
    raise InvalidOption(name, value, "is neither a mapping of weights nor a def", hint=hint)


def build_fair_keys(queue: str, options: Mapping[str, Any]) -> FairKeys | None:
    """Return the fair keys of a queue with these options; None if it has none."""
    by, weights = options["fair_by"], options["fair_weights"]
    if by is None and weights is not None:
        hint = 'app.queue("mail", fair_by="tenant_id", fair_weights={"acme": 5})'
        why = "works with fair_by only"
        raise InvalidOption("fair_weights", weights, why, subject=f"queue {queue!r}", hint=hint)
    return None if by is None else FairKeys(queue, by, weights)


def _find_or_none(path: str, arguments: Mapping[str, Any]) -> Any:
    value: Any = arguments
    for name in path.split("."):
        if not isinstance(value, Mapping) or name not in value:
            return None
        value = value[name]
    return value
