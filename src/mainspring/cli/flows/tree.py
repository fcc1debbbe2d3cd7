"""A flow as a table of lines: what runs one after the other stands below each other, what runs side by side branches.

    listing
    |- total            two branches behind `listing`
    |- resize x 300     a group whose members are one line, with a bar
    report (after ...)  waits for several branches, so it stands behind all of them

A node is *placed* under the node that it waits for; if it waits for several, under the last node that all of them have
in common. The members of a group are placed in the group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple
from uuid import UUID

from mainspring.cli.output import Table
from mainspring.flows.info import FlowInfo, NodeInfo
from mainspring.flows.shape import ALIKE_SHOWN

BAR = 20
"""Characters of the bar of a group."""
_ENDED = ("succeeded", "dead", "cancelled", "deleted")
_CALLBACKS = {"fail": "on_success", "ignore": "on_finished", "dead": "on_dead"}


class _Line(NamedTuple):
    """A node, and what stands before it on its line and on the lines below."""

    node: NodeInfo
    first: str
    rest: str


def draw_tree(flow: FlowInfo) -> Table:
    """One row for each node: its task, its state, its progress and its id.

    ``*`` marks the critical path: the longest way of jobs that have not ended.
    """
    critical = critical_path(flow)
    rows: list[tuple[str, str, str, object]] = []
    for node, first, _ in _Layout(flow).lines():
        star = " *" if node.id in critical else ""
        rows.append((f"{first}{_name(node, flow)}{star}", _state(node), _progress(node), node.id))
    return Table(("job", "state", "progress", "id"), [*rows, *_undo_rows(flow)], empty="no jobs")


def critical_path(flow: FlowInfo) -> set[UUID]:
    """The nodes on the longest way of nodes that have not ended."""
    members: dict[UUID | None, list[UUID]] = {}
    for node in flow.nodes:
        members.setdefault(node.group, []).append(node.id)
    open_nodes = {node.id: (*node.after, *members.get(node.id, ())) for node in flow.nodes if node.state not in _ENDED}
    length: dict[UUID, int] = {}
    before: dict[UUID, UUID | None] = {}
    todo = list(reversed(open_nodes))
    while todo:
        parents = [parent for parent in open_nodes[todo[-1]] if parent in open_nodes]
        unknown = [parent for parent in parents if parent not in length]
        if unknown:
            todo += unknown
            continue
        at = todo.pop()
        before[at] = max(parents, key=length.__getitem__, default=None)
        length[at] = 1 + max((length[parent] for parent in parents), default=0)
    path: set[UUID] = set()
    last = max(length, key=length.__getitem__, default=None)
    while last is not None:
        path.add(last)
        last = before[last]
    return path


class _Layout:
    """Places the nodes, and walks over their lines."""

    def __init__(self, flow: FlowInfo) -> None:
        self._nodes = {node.id: node for node in flow.nodes if node.kind != "undo"}
        self._place: dict[UUID, UUID | None] = {}
        """The node under which each node is placed; None at the top of a flow or a group."""
        self._branches: dict[UUID | None, list[NodeInfo]] = {}
        self._joined: dict[UUID | None, list[NodeInfo]] = {}
        """Nodes that wait for several branches, by the node that these have in common."""
        for node in self._nodes.values():
            self._place_node(node)

    def lines(self) -> Iterator[_Line]:
        todo: list[_Line] = []
        self._add_below(todo, None, "", "")
        while todo:
            line = todo.pop()
            yield line
            self._add_below(todo, line.node, line.rest, line.rest)

    def _place_node(self, node: NodeInfo) -> None:
        inside = node.group if node.group in self._nodes else None
        parents = [each for each in node.after if each in self._nodes and self._nodes[each].group == node.group]
        ways = [self._way_up(parent) for parent in parents]
        ways = [way for way in ways if not any(way[0] in other[1:] for other in ways)]  # others wait for it already
        if not ways:
            self._place[node.id] = None
            self._branches.setdefault(inside, []).append(node)
        elif len(ways) == 1:
            self._place[node.id] = ways[0][0]
            self._branches.setdefault(ways[0][0], []).append(node)
        else:
            common = next((each for each in ways[0] if all(each in way for way in ways[1:])), None)
            self._place[node.id] = common
            self._joined.setdefault(inside if common is None else common, []).append(node)

    def _way_up(self, id: UUID) -> list[UUID]:
        way = [id]
        while (above := self._place[way[-1]]) is not None:
            way.append(above)
        return way

    def _add_below(self, todo: list[_Line], node: NodeInfo | None, branch: str, flat: str) -> None:
        """Put the lines below a node on the stack, the first one on top."""
        id = None if node is None else node.id
        members = [] if node is None else [each for each in self._branches.get(id, ()) if each.group == id]
        others = [each for each in self._branches.get(id, ()) if each not in members]
        joined = self._joined.get(id, [])
        behind = [*joined, *others] if members or len(others) == 1 else joined
        side_by_side = members or (others if len(others) > 1 else [])
        lines = [_Line(each, f"{branch}|- ", f"{branch}|  ") for each in side_by_side[:-1]]
        lines += [_Line(each, f"{branch}`- ", f"{branch}   ") for each in side_by_side[-1:]]
        lines += [_Line(each, flat, flat) for each in behind]
        todo += reversed(lines)


def _name(node: NodeInfo, flow: FlowInfo) -> str:
    task = node.task.rpartition(".")[2]
    is_drawn = any(each.group == node.id for each in flow.nodes)
    if node.kind == "batch":
        name = "members"
    elif node.kind == "each":
        name = f"each {task}"
    elif node.kind == "group":
        name = "group" if is_drawn or not node.total else f"group of {task}"
    else:
        name = task
    nodes = {each.id: each for each in flow.nodes}
    parents = [nodes[each] for each in node.after if each in nodes]
    if any(parent.kind == "batch" for parent in parents):
        return f"{name} ({_CALLBACKS[node.when]})"
    notes = [] if len(parents) < 2 else [f"after {', '.join(each.task.rpartition('.')[2] for each in parents)}"]
    notes += [] if node.when in ("fail", "member") else [f"when={node.when}"]
    return f"{name} ({'; '.join(notes)})" if notes else name


def _state(node: NodeInfo) -> str:
    if node.reason == "bypassed":
        return "bypassed"
    return f"{node.state} ({node.reason})" if node.reason else node.state


def _progress(node: NodeInfo) -> str:
    if node.total:
        good, bad = BAR * node.good // node.total, -(-BAR * node.bad // node.total)
        bar = "#" * good + "!" * bad
        failed = f", {node.bad:,} failed" if node.bad else ""
        return f"[{bar[:BAR].ljust(BAR, '.')}] {node.good + node.bad:,} of {node.total:,}{failed}"
    if node.progress and node.progress.get("total"):
        return f"{node.progress['done']:,} of {node.progress['total']:,}"
    return ""


def _undo_rows(flow: FlowInfo) -> Iterator[tuple[str, str, str, object]]:
    """Compensations; many of one task are one row for each state."""
    undos = [node for node in flow.nodes if node.kind == "undo"]
    counts = Counter((node.task, _state(node)) for node in undos)
    for node in undos:
        name, state = f"undo {node.task.rpartition('.')[2]}", _state(node)
        n = counts.pop((node.task, state), 0)
        if n > ALIKE_SHOWN:
            yield f"{name} x {n:,}", state, "", ""
        elif n:
            yield from ((name, state, "", each.id) for each in undos if (each.task, _state(each)) == (node.task, state))
