"""Refuses a step whose parameter cannot take the result before it, as far as both types are declared.

A type checker finds more. Here only types that can never fit are refused: ``str`` for an ``int``, a number for a list.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, get_args, get_origin

from mainspring.codec.wire import shown_type
from mainspring.errors import BadSignature, WrongArgument
from mainspring.jobs.call import Call, Step

if TYPE_CHECKING:
    from mainspring.flows.flow import Flow

_NUMBERS = (int, float)
_LISTS = (list, tuple, set, frozenset)
_SCALARS = (str, bytes, bool, int, float)


def check_takes(before: Flow[Any], step: Step[Any], *, each: bool) -> None:
    """Raise ``WrongArgument`` if the step cannot take the result of ``before``, or an element of it."""
    found = result_type(before)
    if found is Any:
        return
    if each:
        if found in _SCALARS or get_origin(found) is dict:
            why = f"runs for each element of a list, and the part before it returns {shown_type(found)}"
            raise WrongArgument(step.task, "", why, hint="Let the task return a list.")
        found = get_args(found)[0] if get_origin(found) is list else Any
    hint = "The first argument of a step is the result of the part before it."
    _check_fits(found, step, next(iter(step.inputs)), "the part before it", hint)


def check_takes_node(before: Flow[Any], step: Step[Any], name: str) -> None:
    """Raise ``WrongArgument`` if this parameter cannot take the result of ``before``, a node of the same ``Dag``."""
    found = result_type(before)
    if found is not Any:
        _check_fits(found, step, name, "the node", "The argument gets the result of the node, not the node.")


def _check_fits(found: Any, step: Step[Any], name: str, source: str, hint: str) -> None:
    wanted = _parameter_type(step, name)
    if not _may_fit(found, wanted):
        raise WrongArgument(
            step.task, name,
            f"argument {name!r} is declared as {shown_type(wanted)}, and {source} returns {shown_type(found)}",
            path=name, hint=hint,
        )  # fmt: skip


def result_type(flow: Flow[Any]) -> Any:
    """The declared type of the result; ``Any`` if it is not known."""
    from mainspring.flows.flow import Chain, Group

    if isinstance(flow, Call):
        task: Any = flow.app.tasks.find(flow.task)
        try:
            return Any if task is None else task.declared_result
        except BadSignature:
            return Any
    if isinstance(flow, Chain):
        link = flow.links[-1]
        if link.kind in ("then", "after"):
            return result_type(link.targets[0])
        return list
    if isinstance(flow, Group):
        types = {result_type(each) for each in flow.members}
        only = types.pop() if len(types) == 1 else Any
        return list if only is Any else list[only]  # type: ignore[valid-type]  # a type that is computed
    return Any


def _parameter_type(step: Step[Any], name: str) -> Any:
    task: Any = step.app.tasks.find(step.task)
    try:
        return Any if task is None else task.parameter_types.get(name, Any)
    except BadSignature:
        return Any


def _may_fit(found: Any, wanted: Any) -> bool:
    """False only where both types are simple and no value of one is a value of the other."""
    plain_found, plain_wanted = get_origin(found) or found, get_origin(wanted) or wanted
    if plain_wanted in (Any, object) or plain_found in (Any, object) or found is None:
        return True
    if plain_found in _LISTS and plain_wanted in _LISTS:
        inner_found, inner_wanted = get_args(found)[:1], get_args(wanted)[:1]
        return not inner_found or not inner_wanted or _may_fit(inner_found[0], inner_wanted[0])
    if plain_found in _NUMBERS and plain_wanted in _NUMBERS:
        return True
    known = (*_SCALARS, *_LISTS, dict)
    return (
        plain_found not in known
        or plain_wanted not in known
        or plain_found is plain_wanted
        or (plain_found is bool and plain_wanted in _NUMBERS)
    )
