"""mainspring flows."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from mainspring import Dag, Mainspring, group
from mainspring.common.ids import new_id
from mainspring.flows.info import FlowInfo
from tests.cli.conftest import LIMIT, Shop
from tests.cli.watching import on_terminal

Golden = Callable[[str, str], None]


def tasks(shop: Shop) -> tuple[Any, Any, Any, Any]:
    return shop.task("add"), shop.task("fail"), shop.task("greet"), shop.task("total")


def order(shop: Shop) -> UUID:
    """A chain with compensations that fails in its third part; the id of its flow."""
    add, fail, _, _ = tasks(shop)
    job = (add.s(1, 2).undo(add).then(add).undo(add) | fail.s("declined") | add.s(5)).flow(name="order 7").enqueue()
    return id_of(shop, job)


def gallery(shop: Shop, n: int = 5, **options: Any) -> UUID:
    """A chord, and what follows it."""
    add, _, _, total = tasks(shop)
    job = (group(add.s(each) for each in range(n)) | total | add).flow(name="gallery", **options).enqueue()
    return id_of(shop, job)


def graph(shop: Shop) -> UUID:
    """A diamond, a chain in a group, and a node that runs also after a failure."""
    add, fail, greet, total = tasks(shop)
    dag = Dag()
    top = dag.add(add.s(1))
    left, right = dag.add(add.s(top.result)), dag.add(add.s(top.result, 2))
    bottom = dag.add(add.s(left.result, right.result))
    both = dag.add(group(greet.s("a"), group(add.s(1), add.s(2)) | total), after=[bottom])
    dag.add(fail.s("end"), after=[both], when="ignore")
    dag.add(greet.s("aside"), after=[left])
    return id_of(shop, dag.enqueue())


def id_of(shop: Shop, job: Any) -> UUID:
    found: FlowInfo = shop.app.flows.get(job.id)
    return found.id


def ended(shop: Shop, *flows: UUID) -> None:
    with shop.app.worker():
        for flow in flows:
            shop.app.jobs.get(flow).join(timeout=LIMIT)


@pytest.mark.row("U2", "F6")
@pytest.mark.option("cli.flows.ls.tag", "cli.flows.ls.since", "cli.flows.ls.limit", "cli.flows.ls.state")
def test_ls_shows_the_newest_flows(shop: Shop, golden: Golden) -> None:
    golden("flows-none.txt", shop.run("flows", "ls").out)
    failed = order(shop)
    ended(shop, failed)
    open_flow = gallery(shop, tags=["nightly"])
    golden("flows-ls.txt", shop.call("flows", "ls").out)
    golden("flows-ls.json", shop.run("flows", "ls", "--json").out)
    for flags, wanted in (
        (["--tag", "nightly"], [open_flow]), (["--state", "failed"], [failed]), (["--state", "running"], [open_flow]),
        (["--limit", "1"], [open_flow]), (["--since", "1h"], [open_flow, failed]), (["--since", "2099-01-01"], []),
    ):  # fmt: skip
        shown = json.loads(shop.run("flows", "ls", *flags, "--json").out)["flows"]
        assert [flow["id"] for flow in shown] == [str(id) for id in wanted], flags


@pytest.mark.row("U2", "F6", "F7")
@pytest.mark.option("cli.flows.show.id")
def test_show_a_failed_flow_with_its_compensations_and_errors(shop: Shop, golden: Golden) -> None:
    flow = order(shop)
    golden("flows-show-chain.txt", shop.run("flows", "show", str(flow)).out)
    ended(shop, flow)
    golden("flows-show-failed.txt", shop.call("flows", "show", str(flow)).out)
    golden("flows-show-failed.json", shop.run("flows", "show", str(flow), "--json").out)


@pytest.mark.row("U2", "F6")
def test_show_groups_as_bars_and_parallel_parts_as_branches(shop: Shop, golden: Golden) -> None:
    flow, dag = gallery(shop, 100, time_limit="1h", key="gallery"), graph(shop)
    golden("flows-show-group.txt", shop.run("flows", "show", str(flow)).out)
    golden("flows-show-dag.txt", shop.run("flows", "show", str(dag)).out)
    ended(shop, flow, dag)
    shown = shop.run("flows", "show", str(flow)).out
    assert "[####################] 100 of 100" in shown
    assert "*" not in shown, "an ended flow has no critical path"


@pytest.mark.row("U2", "F4")
@pytest.mark.option("cli.flows.close.id")
def test_an_open_batch_is_shown_and_closed(shop: Shop, golden: Golden) -> None:
    add, fail, greet, _ = tasks(shop)
    batch = shop.app.flows.batch(
        "import", on_success=greet.s("good"), on_finished=greet.s("end"), on_dead=greet.s("bad")
    )
    batch.add_many(add.s(n) for n in range(4))
    batch.add(fail.s("broken"))
    golden("flows-show-batch.txt", shop.run("flows", "show", str(batch.id)).out)
    golden("flows-close.txt", shop.run("flows", "close", str(batch.id)).out)
    golden("flows-close.json", shop.run("flows", "close", str(batch.id), "--json").out)
    ended(shop, batch.id)
    golden("flows-show-batch-ended.txt", shop.run("flows", "show", str(batch.id)).out)


def test_close_is_for_batches(shop: Shop) -> None:
    ran = shop.run("flows", "close", str(gallery(shop)))
    assert (ran.code, "a flow that is no batch" in ran.err) == (2, True), ran.err


@pytest.mark.row("U2", "F6")
@pytest.mark.option("cli.flows.graph.id", "cli.flows.graph.form")
def test_graph_prints_mermaid_and_dot(shop: Shop, golden: Golden) -> None:
    flow = str(graph(shop))
    golden("flows-graph.mmd", shop.call("flows", "graph", flow).out)
    golden("flows-graph.dot", shop.run("flows", "graph", flow, "--format", "dot").out)
    shown = json.loads(shop.run("flows", "graph", flow, "--json").out)
    ids = {node["id"] for node in shown["nodes"]}
    assert {id for edge in shown["edges"] for id in (edge["parent"], edge["child"])} == ids, "every node is connected"


@pytest.mark.row("U2", "F6")
@pytest.mark.option("cli.flows.cancel.id", "cli.flows.cancel.reason", "cli.flows.cancel.yes")
def test_cancel_asks_and_cancels_the_whole_flow(shop: Shop, golden: Golden) -> None:
    flow = str(gallery(shop))
    refused = shop.call("flows", "cancel", flow)
    assert (refused.code, "--yes" in refused.err) == (2, True)
    done = shop.run("flows", "cancel", flow, "--yes", "--reason", "not needed")
    golden("flows-cancel.txt", done.out)
    found = shop.app.flows.get(flow)
    assert (found.state, found.counts) == ("cancelled", {"cancelled": 7})
    assert shop.app.jobs.get(flow).info().note == "not needed"
    again = shop.run("flows", "cancel", flow, "--yes", "--json")
    assert (again.code, json.loads(again.out)) == (1, {"cancelled": False, "id": flow})


@pytest.mark.row("U2", "F6")
@pytest.mark.option("cli.flows.retry.id")
def test_retry_goes_on_where_the_flow_failed(shop: Shop, golden: Golden) -> None:
    add, fail, _, _ = tasks(shop)
    flow = id_of(shop, (add.s(1) | fail.s("once") | add.s(2)).enqueue())
    ended(shop, flow)
    golden("flows-retry.txt", shop.run("flows", "retry", str(flow)).out)
    assert shop.app.flows.get(flow).counts == {"succeeded": 1, "ready": 1, "blocked": 1}
    ran = shop.run("flows", "retry", str(flow))
    assert (ran.code, "cannot retry" in ran.err or "retry" in ran.err) == (2, True)


@pytest.mark.parametrize("command", ["show", "graph", "cancel", "retry", "close"])
def test_an_id_without_a_flow_is_named(shop: Shop, command: str) -> None:
    alone = shop.task("add").enqueue(1)
    for id in (new_id(), alone.id):
        ran = shop.run("flows", command, str(id), *(["--yes"] if command == "cancel" else []))
        assert (ran.code, ran.out) == (2, "")
        assert f"flow '{id}' is not in the store" in ran.err


@pytest.mark.row("U2")
@pytest.mark.option("cli.jobs.ls.flow")
def test_the_jobs_of_a_flow_are_listed(shop: Shop) -> None:
    flow = gallery(shop, 2)
    shop.task("add").enqueue(1)
    jobs = json.loads(shop.run("jobs", "ls", "--flow", str(flow), "--task", "shop.add", "--json").out)["jobs"]
    assert [job["flow"] for job in jobs] == [str(flow)] * 3
    assert f"flow      {flow}" in shop.run("jobs", "show", jobs[0]["id"]).out


@pytest.mark.row("B20", "U2")
def test_check_knows_what_flows_supply(shop: Shop) -> None:
    """Joins, built-in tasks and arguments that are results of other jobs are no reason to refuse a job."""
    gallery(shop)
    add, _, _, _ = tasks(shop)
    (shop.task("count").s(2).each(add) | shop.task("total")).enqueue()
    ran = shop.run("check")
    assert (ran.code, "this code can run all of them" in ran.out) == (0, True), ran.out
    (add.s(1).then(add, b=2)).enqueue()
    file = shop.folder / "app.py"
    file.write_text(file.read_text().replace("def add(a: int, b: int = 1)", "def add(first: int, b: int = 1)"))
    ran = shop.call("check", "--json")
    assert {each["task"] for each in json.loads(ran.out)["refused"]} == {"shop.add"}


@pytest.mark.row("U2")
def test_a_part_of_a_flow_runs_locally_with_the_results_before_it(shop: Shop) -> None:
    flow = gallery(shop, 3)
    [total] = shop.app.jobs.list(task="shop.total", flow=flow)
    refused = shop.run("jobs", "run", str(total.id), "--local")
    assert (refused.code, "result of a job that has not ended" in refused.err) == (2, True)
    ended(shop, flow)
    assert shop.run("jobs", "run", str(total.id), "--local").out == "6\n"
    assert "belongs to a flow" in shop.run("jobs", "run", str(flow), "--local").err


def test_why_of_a_join_names_its_members_and_what_they_wait_for(shop: Shop) -> None:
    batch = shop.app.flows.batch("import").open()
    job = batch.add(shop.task("add").s(1))
    members = shop.app.flows.get(batch.id).nodes[0].id
    found = shop.run("jobs", "why", str(members)).out
    assert str(job.id) in found
    assert "it is open" in found
    assert f"it waits for {job.task} {job.id} (ready): no live worker serves queue 'default'" in " ".join(found.split())


COMMANDS = ["ls", "show ID", "graph ID", "cancel ID --yes", "retry DEAD", "close BATCH"]


@pytest.mark.row("C4", "U2")
@pytest.mark.option("cli.flows.ls.url", "cli.flows.ls.namespace", "cli.flows.ls.app", "cli.flows.ls.as_json")
@pytest.mark.option("cli.flows.show.url", "cli.flows.show.namespace", "cli.flows.show.app", "cli.flows.show.as_json")
@pytest.mark.option(
    "cli.flows.graph.url", "cli.flows.graph.namespace", "cli.flows.graph.app", "cli.flows.graph.as_json"
)
@pytest.mark.option("cli.flows.cancel.url", "cli.flows.cancel.namespace", "cli.flows.cancel.app")
@pytest.mark.option("cli.flows.cancel.as_json", "cli.flows.retry.as_json", "cli.flows.close.as_json")
@pytest.mark.option("cli.flows.retry.url", "cli.flows.retry.namespace", "cli.flows.retry.app")
@pytest.mark.option("cli.flows.close.url", "cli.flows.close.namespace", "cli.flows.close.app")
@pytest.mark.stores("sqlite")
@pytest.mark.parametrize("by", ["url", "app"])
def test_the_store_is_named_by_flags(shop: Shop, monkeypatch: pytest.MonkeyPatch, by: str) -> None:
    """Without the flags the command would import an app that cannot be imported."""
    app = Mainspring(shop.url, namespace="other")

    @app.task(name="shop.note", retries=0)
    def note(text: str) -> None:
        if text == "bad":
            raise ValueError(text)

    with app.worker():
        failed = app.flows.get((note.s("bad") | note.s("never")).enqueue().id).id
        app.jobs.get(failed).join(timeout=LIMIT)
    flow = app.flows.get((note.s("a") | note.s("b")).enqueue().id).id
    batch = app.flows.batch("import").open().id
    app.close()
    monkeypatch.delenv("MAINSPRING_URL")
    code = f"from mainspring import Mainspring\napp = Mainspring({shop.url!r}, namespace='other')\n"
    (shop.folder / "good.py").write_text(code)
    (shop.folder / "app.py").write_text("from mainspring import Mainspring\napp = Mainspring()\n1 / 0\n")
    flags = ["--url", shop.url, "--namespace", "other"] if by == "url" else ["-A", "good.py"]
    ids = {"ID": str(flow), "DEAD": str(failed), "BATCH": str(batch)}
    for command in COMMANDS:
        words = ["flows", *(ids.get(word, word) for word in command.split())]
        ran = shop.run(*words, *flags, "--json")
        assert (ran.code, ran.err) == (0, ""), command
        assert json.loads(ran.out)
        assert shop.run(*words).code == 2


@pytest.mark.row("U2")
@pytest.mark.option("cli.flows.ls.watch", "cli.flows.show.watch")
@pytest.mark.stores("sqlite")
def test_watch_prints_a_flow_again_and_again(shop: Shop) -> None:
    flow = str(gallery(shop))
    for words in (["show", flow], ["ls"]):

        def state(line: str) -> Any:
            shown = json.loads(line)
            return shown.get("flows", [shown])[0]["state"]

        watching = shop.start("flows", *words, "--watch", "0.1", "--json")
        assert watching.stdout is not None
        assert state(watching.stdout.readline()) in ("running", "cancelled")
        shop.app.flows.cancel(flow)
        while state(watching.stdout.readline()) != "cancelled":
            pass
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=LIMIT)
        assert watching.returncode == 130


@pytest.mark.row("U2")
@pytest.mark.stores("sqlite")
def test_the_tree_keeps_its_shape_on_a_terminal(shop: Shop) -> None:
    """With colours, and on a narrow terminal: a row is never broken."""
    flow = graph(shop)
    _, wide = on_terminal(shop, "flows", "show", str(flow))
    assert "\x1b[36mready" in wide
    _, narrow = on_terminal(shop, "flows", "show", str(flow), COLUMNS="80", NO_COLOR="1")
    plain = shop.run("flows", "show", str(flow)).out
    for line in plain.split("\n\n")[1].splitlines()[1:]:
        job, id = line.split("  ")[0].rstrip(), line.split()[-1]
        assert re.search(rf"(?m)^{re.escape(job)} .*{id}", narrow.replace("\r", "")), (job, narrow)
