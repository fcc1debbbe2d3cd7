"""A flow as a graph: data, Mermaid and DOT."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.flows.info import FlowInfo, NodeInfo

_COLOURS = {
    "succeeded": "#b7e1cd", "dead": "#f4c7c3", "cancelled": "#d9d9d9", "running": "#fce8b2", "ready": "#c9daf8",
    "retrying": "#fce8b2",
}  # fmt: skip
_NAMED = ("ignore", "skip", "wait", "dead")
"""Policies that the picture names."""


class GraphEdge(msgspec.Struct, frozen=True):
    """A job waits for another one."""

    parent: UUID
    child: UUID
    when: str
    """``fail``, ``ignore``, ``skip`` or ``wait``; ``member`` from the last job of a member to its group; ``dead`` to
    the callback ``on_dead`` of a batch."""


class FlowGraph(msgspec.Struct, frozen=True):
    """Nodes and edges of a flow: ``str(graph)`` is its Mermaid text."""

    nodes: tuple[NodeInfo, ...]
    edges: tuple[GraphEdge, ...]

    def mermaid(self) -> str:
        """The graph as a Mermaid flowchart, for Markdown."""
        lines = ["flowchart LR"]
        names = {node.id: f"n{number}" for number, node in enumerate(self.nodes)}
        drawn = {node.group for node in self.nodes}
        lines += [f'    {names[node.id]}["{_label(node, "<br/>", is_drawn=node.id in drawn)}"]' for node in self.nodes]
        lines += [f"    {names[edge.parent]} -->{_mermaid_when(edge)} {names[edge.child]}" for edge in self.edges]
        lines += [
            f"    style {names[node.id]} fill:{_COLOURS[node.state]}" for node in self.nodes if node.state in _COLOURS
        ]
        return "\n".join(lines)

    def dot(self) -> str:
        """The graph in the DOT language of Graphviz."""
        names = {node.id: f"n{number}" for number, node in enumerate(self.nodes)}
        lines = ["digraph flow {", "    rankdir=LR;", "    node [shape=box, style=filled, fillcolor=white];"]
        drawn = {node.group for node in self.nodes}
        for node in self.nodes:
            colour, text = _COLOURS.get(node.state, "white"), _label(node, chr(92) + "n", is_drawn=node.id in drawn)
            lines.append(f'    {names[node.id]} [label="{text}", fillcolor="{colour}"];')
        for edge in self.edges:
            label = f' [label="{edge.when}"]' if edge.when in _NAMED else ""
            lines.append(f"    {names[edge.parent]} -> {names[edge.child]}{label};")
        return "\n".join([*lines, "}"])

    def __str__(self) -> str:
        return self.mermaid()


def build_graph(flow: FlowInfo) -> FlowGraph:
    """The graph of a flow. A group that is drawn with its members has edges from its last ones, and none to them."""
    nodes = {node.id: node for node in flow.nodes}
    drawn = {node.group for node in flow.nodes}
    followed = {(parent, node.group) for node in flow.nodes for parent in node.after}
    edges = [
        GraphEdge(parent, node.id, node.when)
        for node in flow.nodes
        for parent in node.after
        if parent in nodes and node.id not in drawn
    ]
    edges += [
        GraphEdge(node.id, node.group, "member")
        for node in flow.nodes
        if node.group is not None and node.group in nodes and (node.id, node.group) not in followed
    ]
    return FlowGraph(flow.nodes, tuple(edges))


def _label(node: NodeInfo, newline: str, *, is_drawn: bool) -> str:
    task = node.task.rpartition(".")[2].replace('"', "'")
    name = {"undo": f"undo: {task}", "each": f"each: {task}", "batch": "batch"}.get(node.kind, task)
    if is_drawn or (node.kind == "group" and not node.total):
        name = "group"
    elif node.total:
        name = f"{name} x {node.total:,}{newline}{node.good:,} ok, {node.bad:,} failed"
    return f"{name}{newline}{node.state}"


def _mermaid_when(edge: GraphEdge) -> str:
    return f"|{edge.when}|" if edge.when in _NAMED else ""
