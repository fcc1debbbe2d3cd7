"""A call, as it becomes a record."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring import Call, Context, Depends, Key, Mainspring, Middleware, Tasks
from mainspring.common.ids import derived_id
from mainspring.errors import InvalidOption, NoApp, UnknownArgument
from mainspring.jobs import call as call_module
from mainspring.jobs.call import prepare
from mainspring.jobs.new_job import JobOrigin
from mainspring.jobs.query import parent_mark
from mainspring.jobs.records import ENDED_JOB, FollowUp, JobBody, NewJob
from mainspring.states import State
from mainspring.tasks.middleware import wrap_call

app = Mainspring("sqlite://")


@app.task(queue="email", priority="high", crashes=5)
def send(to: str) -> None: ...


@app.task(name="alert", queue="alerts", tags=["alarm"], retention="1h", priority=9)
def alert(job: UUID) -> None: ...


def made(call: Call[Any], code: str | None = None) -> tuple[NewJob, JobBody]:
    new = call.new_job(code)
    return new, body_of(new)


def body_of(new: NewJob) -> JobBody:
    return msgspec.json.decode(new.record, type=JobBody)


def test_the_fast_path_writes_the_same_record_as_the_encoder() -> None:
    new = send.s("a@b.c").new_job()
    assert new.record == msgspec.json.encode(JobBody(args=msgspec.Raw(b'{"to":"a@b.c"}')))


def test_the_fast_path_and_the_slow_path_make_the_same_job() -> None:
    plain = send.s("a@b.c").new_job()
    chosen = send.options(queue="email").s("a@b.c").new_job()
    assert msgspec.structs.replace(plain, id=b"") == msgspec.structs.replace(chosen, id=b"")


def test_job_options_override_task_options() -> None:
    new, body = made(send.options(queue="slow", priority=-7, retries=0, timeout=None).s("a@b.c"), "v1")
    assert (new.queue, new.priority, new.crashes) == ("slow", -7, 5)
    assert (body.retries, body.timeout, body.code) == (0, 0, "v1")


def test_tags_and_meta_of_task_and_job_are_in_the_record_and_tags_are_marks() -> None:
    tagged = app.task(name="tagged", tags=["shop"], meta={"a": 1, "b": 1})(send.fn)
    new, body = made(tagged.s("x"))
    assert (new.marks, body.tags, body.meta) == (("shop",), ("shop",), msgspec.Raw(b'{"a":1,"b":1}'))
    new, body = made(tagged.options(tags=["eu", "shop"], meta={"b": [2]}).s("x"))
    assert (new.marks, body.tags, body.meta) == (("shop", "eu"), ("shop", "eu"), msgspec.Raw(b'{"a":1,"b":[2]}'))


def test_middleware_can_read_task_arguments_and_options_of_a_call() -> None:
    call = send.s("a@b.c").options(delay="5s", tags=["x"])
    assert (call.task, call.arguments, call.given) == (send.name, {"to": "a@b.c"}, {"delay": 5_000_000, "tags": ("x",)})
    call.given["delay"] = 0  # type: ignore[index]  # a copy: nothing comes of it
    assert call.given["delay"] == 5_000_000
    assert app.call("elsewhere", 1, b=2).arguments == {"@": [1], "b": 2}


# ---- hidden arguments ------------------------------------------------------------------------------


def test_sensitive_arguments_are_named_in_the_record_and_not_shown_by_the_call() -> None:
    @app.task(name="login", sensitive=["password"])
    def login(user: str, password: str) -> None: ...

    _, body = made(login.s("ann", "hunter22"))
    assert body.hide == ("password",)
    assert "hunter22" not in repr(login.s("ann", "hunter22"))
    assert "ann" in repr(login.s("ann", "hunter22"))


def test_the_repr_of_a_call_and_the_text_of_a_key_are_cut_with_a_mark() -> None:
    call = send.s("x" * 900)
    assert re.fullmatch(r"<Call .*\(to='x+\.\.\.\)>", repr(call))
    body = body_of(made(call.options(key=Key.arguments()))[0])
    assert body.key is not None
    assert len(body.key) <= 500
    assert body.key.endswith("...")


def test_a_sensitive_name_that_is_not_an_argument_is_refused() -> None:
    with pytest.raises(
        InvalidOption, match=r"sensitive=.*'pasword', which is not an argument.*did you mean 'password'"
    ):

        @app.task(sensitive=["pasword"])
        def login(user: str, password: str) -> None: ...


# ---- dependencies ----------------------------------------------------------------------------------


def get_number(ctx: Context) -> Iterator[int]:
    yield len(ctx.task)


@app.task(name="add")
def add(a: int, *, number: int = Depends(get_number)) -> int:
    return a + number


def test_a_dependency_cannot_be_given_as_an_argument() -> None:
    assert made(add.s(1))[0].record == b'{"args":{"a":1}}'
    with pytest.raises(UnknownArgument, match="argument 'number' is a dependency, which the worker supplies"):
        add.s(1, number=2)
    assert list(add.spec().signature.parameters) == ["a"]
    assert add.spec().plan is not None


def test_a_plain_call_supplies_the_dependency_unless_it_is_given() -> None:
    assert add(1) == 4
    assert add(1, number=10) == 11


async def test_an_async_plain_call_supplies_the_dependency_too() -> None:
    @app.task(name="aadd")
    async def aadd(a: int, number: int = Depends(get_number)) -> int:
        return a + number

    assert await aadd(1) == 5
    assert await aadd(1, 10) == 11
    assert await aadd(1, number=10) == 11


# ---- where it comes from ---------------------------------------------------------------------------


def test_a_spawned_job_has_the_given_id_and_knows_its_parent_and_trace() -> None:
    parent = UUID(int=7)
    origin = JobOrigin(derived_id(parent.bytes, b"child"), parent, "ab" * 16)
    new = send.s("x").options(tags=["t"]).new_job(None, origin)
    body = body_of(new)
    assert new.id == origin.id
    assert (body.parent, body.trace, new.marks) == (str(parent), "ab" * 16, ("t", parent_mark(parent.bytes)))
    again = send.s("x").new_job(None, origin)
    assert again.id == new.id


# ---- follow-ups ------------------------------------------------------------------------------------


def follows(call: Call[Any], **options: Any) -> tuple[NewJob, tuple[FollowUp, ...]]:
    new = call.new_job(**options)
    return new, new.follows


def test_each_follow_up_is_a_complete_job_with_the_id_of_the_ended_job_as_argument() -> None:
    task = app.task(name="followed", on_success=alert, on_dead="alert", on_cancel=alert)(send.fn)
    new, found = follows(task.s("x"), code="v2")
    assert [follow.on for follow in found] == [State.SUCCEEDED, State.DEAD, State.CANCELLED]
    for event, follow in zip((b"on_success", b"on_dead", b"on_cancel"), found, strict=True):
        job, body, id = follow.job, body_of(follow.job), UUID(bytes=new.id)
        assert job.id == derived_id(new.id, event)
        assert job.id[-2:] == b"\0\0"
        assert (job.task, job.queue, job.kind, job.priority, job.keep) == (
            "alert",
            "alerts",
            "thread",
            9,
            3_600_000_000,
        )
        assert (body.parent, body.trace, body.code, body.tags) == (str(id), id.hex, "v2", ("alarm",))
        assert job.marks == ("alarm", parent_mark(new.id))
        assert msgspec.json.decode(body.args) == {"job": str(id)}


def test_follow_ups_of_a_spawned_job_have_its_trace() -> None:
    task = app.task(name="followed2", on_dead=alert)(send.fn)
    _, [follow] = follows(task.s("x"), origin=JobOrigin(b"1" * 16, UUID(int=1), "cd" * 16))
    body = body_of(follow.job)
    assert (body.trace, body.parent) == ("cd" * 16, str(UUID(bytes=b"1" * 16)))


def test_a_complete_call_as_follow_up_keeps_its_options() -> None:
    call = send.s("boss").options(queue="urgent", priority=3, delay="1m", tags=["x"], retries=1)
    _, [follow] = follows(app.task(name="followed3", on_dead=call)(send.fn).s("x"))
    job, body = follow.job, body_of(follow.job)
    assert (job.task, job.queue, job.priority, job.delay, job.crashes) == (send.name, "urgent", 3, 60_000_000, 5)
    assert (msgspec.json.decode(body.args), body.retries, body.tags) == ({"to": "boss"}, 1, ("x",))


def test_a_follow_up_known_by_name_only_gets_the_id_by_position() -> None:
    new, [follow] = follows(app.task(name="followed4", on_dead="elsewhere.alert")(send.fn).s("x"))
    assert (follow.job.task, follow.job.queue, follow.job.kind) == ("elsewhere.alert", "default", "any")
    assert msgspec.json.decode(body_of(follow.job).args) == {"@": [str(UUID(bytes=new.id))]}


def test_a_follow_up_carries_its_own_follow_ups() -> None:
    """Their argument and their parent is a placeholder: the job that they follow gets its id when it is inserted."""
    second = app.task(name="second", on_dead=alert)(alert.fn)
    new, [follow] = follows(app.task(name="first", on_dead=second)(send.fn).s("x"))
    [inner] = follow.job.follows
    body = body_of(inner.job)
    assert (inner.on, inner.job.task, inner.job.queue) == (State.DEAD, "alert", "alerts")
    assert inner.job.id == derived_id(follow.job.id, b"on_dead")
    assert msgspec.json.decode(body.args) == {"job": str(ENDED_JOB)}
    assert (body.parent, body.trace, inner.job.marks) == (
        str(ENDED_JOB), UUID(bytes=new.id).hex, ("alarm", parent_mark(ENDED_JOB.bytes)),
    )  # fmt: skip


other = Mainspring("sqlite://")


@pytest.mark.parametrize(
    ("follow_up", "says"),
    [
        (send, "must take one argument, the UUID of the job that ended: .*'to' expected str"),
        (app.task(name="takes.two")(lambda a, b: None), "must take one argument, .*missing"),
        (app.task(name="has.key", key="k")(alert.fn), "cannot have key="),
        (send.s("x").options(key="k"), "cannot have key="),
        (send.s("x").options(connection=object()), "cannot have connection="),
        (other.task(name="others")(alert.fn), "task of another app"),
        (other.task(name="others")(alert.fn).s(UUID(int=1)), "call of another app"),
        ("takes.two", "must take one argument"),
    ],
)
def test_a_bad_follow_up_is_refused_at_the_first_enqueue_or_before(follow_up: Any, says: str) -> None:
    with pytest.raises(InvalidOption, match=f"(?s){says}"):
        app.task(name="wrongly.followed", on_dead=follow_up)(send.fn).s("x").new_job()


# ---- tasks of a library ----------------------------------------------------------------------------


def library() -> tuple[Tasks, Any]:
    tasks = Tasks()

    @tasks.task(name="lib.send", queue="lib")
    def lib_send(to: str) -> str:
        return to

    return tasks, lib_send


class TestTasks:
    def test_a_plain_call_needs_no_app(self) -> None:
        assert library()[1]("x") == "x"

    @pytest.mark.parametrize(
        "use", [lambda t: t.s("x"), lambda t: t.enqueue("x"), lambda t: t.job(UUID(int=1)), lambda t: t.queue]
    )
    def test_other_uses_of_a_task_without_an_app_raise_no_app(self, use: Callable[[Any], Any]) -> None:
        with pytest.raises(NoApp, match=r"task 'lib.send' belongs to no app yet\n  .*app\.include\(tasks\)"):
            use(library()[1])

    def test_a_library_task_works_after_include_also_with_options_set_before(self) -> None:
        tasks, task = library()
        before = task.options(priority=5)
        app = Mainspring("sqlite://")
        app.include(tasks)
        app.include(tasks)
        assert task.s("x").app is before.s("x").app is app
        assert before.s("x").new_job().priority == 5
        assert app.tasks.queues() == ("default", "lib")
        assert [each.name for each in tasks] == list(app.tasks) == ["lib.send"]

    def test_a_task_included_in_two_apps_must_be_called_through_an_app(self) -> None:
        tasks, task = library()
        one, two = Mainspring("sqlite://"), Mainspring("sqlite://", routes={"lib.*": "routed"})
        for each in (one, two):
            each.include(tasks)
            each.call("lib.send", "x")
        with pytest.raises(NoApp, match=r"(?s)included in 2 apps.*app\.call\('lib.send'.*app\.tasks\.find"):
            task.enqueue("x")
        queues = [each.call("lib.send", "x").new_job().queue for each in (one, two)]
        found = [each.tasks.find("lib.send") for each in (one, two)]
        assert queues == ["lib", "routed"] == [each.queue for each in found if each]
        assert [each.s("x").app for each in found if each] == [one, two]

    def test_tasks_declared_after_include_are_included_too(self) -> None:
        tasks, _ = library()
        app = Mainspring("sqlite://")
        app.include(tasks)
        late = tasks.task(name="lib.late")(send.fn)
        assert late.s("x").app is app
        assert set(app.tasks) == {"lib.send", "lib.late"}

    def test_a_follow_up_of_a_library_belongs_to_the_app_that_enqueues(self) -> None:
        tasks = Tasks()
        alarm = tasks.task(name="lib.alarm")(alert.fn)
        tasks.task(name="lib.work", on_dead=alarm.options(priority=7))(send.fn)
        apps = [Mainspring("sqlite://", routes={"lib.alarm": name}) for name in ("one", "two")]
        for each in apps:
            each.include(tasks)
        jobs = [each.call("lib.work", "x").new_job().follows[0].job for each in apps]
        assert [(job.queue, job.priority) for job in jobs] == [("one", 7), ("two", 7)]

    def test_include_refuses_what_is_not_a_library(self) -> None:
        with pytest.raises(InvalidOption, match="neither a Tasks"):
            app.include(3)  # type: ignore[arg-type]

    def test_a_task_name_that_exists_is_refused(self) -> None:
        app = Mainspring("sqlite://")
        app.task(name="lib.send")(alert.fn)
        with pytest.raises(InvalidOption, match="is already the name of"):
            app.include(library()[0])


# ---- middleware ------------------------------------------------------------------------------------


def test_middleware_without_an_enqueue_method_is_not_called() -> None:
    class Around(Middleware):
        def run(self, ctx: Any, body: Any) -> Any:
            return body()

        async def arun(self, ctx: Any, body: Any) -> Any:
            return await body()

    app = Mainspring("sqlite://")
    app.middleware(Around())
    call = app.task(name="x")(send.fn).s("x")
    assert app.enqueue_middleware == []
    assert prepare(app, [call]).batch.jobs[0].task == "x"


def test_the_first_middleware_added_is_the_outermost() -> None:
    class Tag(Middleware):
        def __init__(self, tag: str) -> None:
            self.tag = tag

        def enqueue(self, call: Call[Any]) -> Call[Any]:
            return call.options(tags=[self.tag])

    app = Mainspring("sqlite://")
    app.middleware(Tag("outer"))
    app.middleware(Tag("inner"))
    task = app.task(name="x", tags=["task"], on_dead="elsewhere")(send.fn)
    call = wrap_call(app.enqueue_middleware, task.s("x").options(tags=["job"]))
    assert call.given["tags"] == ("job", "outer", "inner")
    [follow] = call.new_job().follows
    assert body_of(follow.job).tags == ("outer", "inner"), "a follow-up is an enqueue too"


def test_middleware_must_return_a_call_of_the_app() -> None:
    class Forgets(Middleware):
        def enqueue(self, call: Call[Any]) -> Call[Any]:  # type: ignore[return]  # the mistake under test
            call.options(tags=["x"])

    app = Mainspring("sqlite://")
    app.middleware(Forgets())
    with pytest.raises(InvalidOption, match=r"Forgets: .*must return a call.*\n  return call\.options"):
        prepare(app, [app.task(name="x")(send.fn).s("x")])


def test_upgrade_registers_the_function_and_returns_it_unchanged() -> None:
    tasks, task = library()

    def upgrade(old: dict[str, Any]) -> dict[str, Any]:
        return {"to": old["address"]}

    app.include(tasks)
    assert task.spec().upgrade is None
    assert task.upgrade(upgrade) is upgrade
    found = app.tasks.find("lib.send")
    assert found is not None
    assert found.spec().upgrade is upgrade


def test_the_connection_of_many_calls_is_settled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A check of all calls for each call took 18 s for 4,000 calls, inside the caller's transaction."""
    checks: list[int] = []
    shared = call_module._shared_connection

    def counted(calls: Sequence[Call[Any]], connection: Any) -> Any:
        checks.append(len(calls))
        return shared(calls, connection)

    monkeypatch.setattr(call_module, "_shared_connection", counted)
    connection = object()
    assert prepare(app, [send.s("a@b.c") for _ in range(50)], connection).connection is connection
    assert checks == [50]


@pytest.mark.parametrize("owner", [Mainspring, Tasks])
def test_the_decorators_are_methods_that_a_subclass_can_override(owner: type[Mainspring] | type[Tasks]) -> None:
    class Own(owner):  # type: ignore[misc, valid-type]  # the base is a parameter of the test
        def task(self, fn: Any = None, **o: Any) -> Any:
            return super().task(fn, **{"priority": 7, **o})

    def work() -> None: ...

    assert Own().task(name="work")(work).declared.options["priority"] == 7
    for name in ("task", "bulk_task", "schedule"):
        assert getattr(owner, name).__doc__, f"help({owner.__name__}.{name}) shows nothing"
