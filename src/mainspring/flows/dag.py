"""Dag: jobs with any dependencies between them, as long as no job waits for itself.

dag = Dag()
raw = dag.add(fetch.s(url))
clean = dag.add(clean_up.s(raw.result))              # gets the result of `raw`, and waits for it
stats = dag.add(count.s(), after=[clean])            # waits, without the result
dag.add(report.s(clean.result, stats.result), when="ignore")
dag.enqueue()
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from mainspring.codec.signature import Supplied
from mainspring.errors import InvalidOption
from mainspring.flows.flow import WHENS, Chain, Flow, Group, When, of_app
from mainspring.flows.types import check_takes_node
from mainspring.jobs.call import Step

if TYPE_CHECKING:
    from mainspring.app import Mainspring

R = TypeVar("R")


class NodeResult(Supplied):
    """Stands for the result of a node in the arguments of another node."""

    __slots__ = ("node",)

    def __init__(self, node: Node[Any]) -> None:
        self.node = node

    @property
    def id(self) -> bytes:
        return self.node.id

    def __repr__(self) -> str:
        return f"<result of {self.node!r}>"


class Node(Generic[R]):
    """A part of a ``Dag``."""

    __slots__ = ("body", "dag", "id", "number", "parents", "when")

    def __init__(self, dag: Dag, number: int, body: Flow[R], parents: tuple[Node[Any], ...], when: When) -> None:
        self.dag = dag
        self.number = number
        self.body = body
        self.parents = parents
        self.when = when
        self.id = b""
        """The id of its job, or of its last job, once the flow is planned."""

    @property
    def result(self) -> R:
        """The result of this node, as an argument of another node: ``dag.add(load.s(clean.result))``."""
        return NodeResult(self)  # type: ignore[return-value]  # it stands for the value, which exists later

    def __repr__(self) -> str:
        return f"<Node {self.number} {self.body!r}>"


class Dag(Flow[None]):
    """Parts with dependencies. It ends when all of them have ended, and fails if one of its last parts failed."""

    __slots__ = ("app", "nodes")

    def __init__(self) -> None:
        self.app: Mainspring | None = None
        self.nodes: list[Node[Any]] = []

    def add(self, call: Flow[R], *, after: Sequence[Node[Any]] = (), when: When = "fail") -> Node[R]:
        """Add a part that runs after these nodes, and after the nodes whose results are among its arguments.

        ``when`` decides what it does if one of them did not succeed: see ``When``.
        """
        if not isinstance(call, Flow) or isinstance(call, Dag):
            hint = "dag.add(task.s(1)), dag.add(a.s(1) | b), dag.add(group(...))."
            raise InvalidOption("call", call, "is not a call", subject="Dag.add", hint=hint)
        if when not in WHENS:
            raise InvalidOption("when", when, f"must be one of {', '.join(map(repr, WHENS))}", subject="Dag.add")
        of_app(call, self.app)
        if _contains(call, self):
            hint = "A Dag cannot be a part of itself: its jobs would wait for each other."
            raise InvalidOption("call", call, "is a cycle: the call contains this Dag", subject="Dag.add", hint=hint)
        self.app = self.app or call.app
        found: dict[Node[Any], None] = {}
        for node in (*after, *_nodes_in(call)):
            if not isinstance(node, Node) or node.dag is not self:
                hint = "after= takes nodes that this Dag's add() returned."
                raise InvalidOption("after", node, "is not a node of this Dag", subject="Dag.add", hint=hint)
            found[node] = None
        if isinstance(call, Step):
            _check_results(call)
        made = Node(self, len(self.nodes), call, tuple(found), when)
        self.nodes.append(made)
        return made

    def checked_nodes(self) -> list[Node[Any]]:
        if not self.nodes:
            raise InvalidOption(
                "dag", self, "has no nodes", subject="Dag", hint="Add at least one: dag.add(task.s(1))."
            )
        return self.nodes

    def __repr__(self) -> str:
        return f"<Dag of {len(self.nodes)} nodes>"


def _nodes_in(flow: Flow[Any]) -> list[Node[Any]]:
    """The nodes whose results are arguments of this part."""
    if isinstance(flow, Step):
        return [each.node for each in flow.inputs.values() if isinstance(each, NodeResult)]
    if isinstance(flow, Dag):
        return []
    if any(map(_nodes_in, _parts_of(flow))):
        hint = "Add the call that takes the result as a node of its own."
        raise InvalidOption(
            "call", flow, "has the result of a node inside of a chain or a group", subject="Dag.add", hint=hint
        )
    return []


def _parts_of(flow: Flow[Any]) -> list[Flow[Any]]:
    """The parts that a chain, a group or a graph consists of."""
    if isinstance(flow, Chain):
        return [flow.first, *(each for link in flow.links for each in link.targets)]
    if isinstance(flow, Group):
        return list(flow.members)
    return [node.body for node in flow.nodes] if isinstance(flow, Dag) else []


def _contains(flow: Flow[Any], dag: Dag) -> bool:
    return flow is dag or any(_contains(part, dag) for part in _parts_of(flow))


def _check_results(step: Step[Any]) -> None:
    """Refuse an argument that cannot take the result of its node."""
    for name, source in step.inputs.items():
        if isinstance(source, NodeResult):
            check_takes_node(source.node.body, step, name)
