"""Every setting comes from three places in a fixed order, is checked, and is declared once."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path
from typing import Any, ForwardRef

import pytest

from mainspring import Mainspring
from mainspring.common.redact import redact
from mainspring.errors import BadUrl, InvalidOption, UnknownOption
from mainspring.jobs.records import Retention
from mainspring.options.typed import WorkerOptions
from mainspring.settings.schema import schema
from mainspring.settings.settings import AppSettings, Settings
from mainspring.settings.table import OF_ONE_RUN, TABLE
from mainspring.stores.connect import StoreAddress
from mainspring.tasks.routing import Routes

OF_THE_APP = ("url", "namespace", "name", "include", "version")

SAMPLES: dict[str, tuple[Any, str, str, Any]] = {
    # name: (as a keyword, in the environment, in the file, what all of them mean)
    "url": ("sqlite:////var/a.db", "sqlite:////var/a.db", "'sqlite:////var/a.db'", "sqlite:////var/a.db"),
    "namespace": ("eu_1", "eu_1", "'eu_1'", "eu_1"),
    "name": ("shop", "shop", "'shop'", "shop"),
    "include": (["shop.tasks", "os"], "shop.tasks, os", "['shop.tasks', 'os']", ("shop.tasks", "os")),
    "version": ("2026.1", "2026.1", "'2026.1'", "2026.1"),
    "durability": ("normal", "normal", "'normal'", "normal"),
    "strict": (True, "Yes", "true", True),
    "replicas": (2, "2", "2", 2),
    "wait_fsync": (True, "1", "true", True),
    "listen_url": ("postgres://a/b", "postgres://a/b", "'postgres://a/b'", "postgres://a/b"),
    "pooler": (True, "on", "true", True),
    "routes": ({"a.*": "b"}, "a.*=b", "{'a.*' = 'b'}", Routes({"a.*": "b"})),
    "full_wait": ("3s", "3s", "'3s'", 3_000_000),
    "enqueue_patience": ("0s", "0s", "'0s'", 0),
    "keep": (timedelta(hours=2), "2h", "7200", 7_200_000_000),
    "keep_count": (7, "7", "7", 7),
    "keep_dead": ("3d", "3d", "'3d'", 259_200_000_000),
    "keep_dead_count": (0, "0", "0", 0),
    "payload_limit": ("64KiB", "64KiB", "65536", 65_536),
    "result_limit": (8_000_000, "8MB", "'8MB'", 8_000_000),
    "log_level": ("debug", "DEBUG", "'debug'", "debug"),
    "log_format": ("json", "json", "'json'", "json"),
    "log_file": ("stdout", "stdout", "'stdout'", "stdout"),
    "redact": (["card", "iban"], "card,iban,", "['card', 'iban']", ("card", "iban")),
    "queues": (["a", "b"], "a, b", "['a', 'b']", ("a", "b")),
    "async_slots": (3, "3", "3", 3),
    "thread_slots": (5, "5", "5", 5),
    "process_slots": (37, "37", "37", 37),
    "concurrency": ({"email": 5, "sms": 1}, "email=5, sms=1", "{email = 5, sms = 1}", {"email": 5, "sms": 1}),
    "lease": (7.5, "7.5", "7.5", 7_500_000),
    "drain": ("0s", "0s", "0", 0),
    "poll": ("250ms", "250ms", "'250ms'", 250_000),
    "sweep": ("1s", "1s", "1", 1_000_000),
    "grace": ("1m30s", "1m30s", "'1m30s'", 90_000_000),
    "roles": (["api", "worker"], "api,worker", "'api,worker'", frozenset({"api", "worker"})),
    "labels": ({"gpu", "big"}, "gpu, big", "['gpu', 'big']", ("big", "gpu")),
}


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MAINSPRING_"):
            monkeypatch.delenv(name)


def settings(folder: Path, **given: Any) -> AppSettings:
    return AppSettings(given, str(folder / "shop.py"))


def test_there_is_a_sample_of_every_setting() -> None:
    assert list(SAMPLES) == list(TABLE)


@pytest.mark.parametrize("name", SAMPLES)
def test_file_environment_and_keyword_mean_the_same_and_name_their_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    keyword, text, toml, normal = SAMPLES[name]
    assert TABLE[name].default != normal, "a sample that differs from the default"

    by_keyword = settings(tmp_path, **{name: keyword})
    assert getattr(by_keyword, name) == normal
    assert by_keyword.origins[name][1:] == ("keyword", str(tmp_path / "shop.py"))

    file = tmp_path / "mainspring.toml"
    file.write_text(f"{name} = {toml}\n")
    by_file = settings(tmp_path)
    assert getattr(by_file, name) == normal
    assert by_file.origins[name][1:] == ("file", f"{file}: {name}")
    file.unlink()

    monkeypatch.setenv(f"MAINSPRING_{name.upper()}", text)
    by_environment = settings(tmp_path)
    assert getattr(by_environment, name) == normal
    assert by_environment.origins[name][1:] == ("environment", f"MAINSPRING_{name.upper()}")

    assert by_keyword.origins[name].value == by_file.origins[name].value == by_environment.origins[name].value


@pytest.mark.parametrize("name", SAMPLES)
def test_keyword_overrides_environment_overrides_file_overrides_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    keyword, text, toml, normal = SAMPLES[name]
    default = getattr(settings(tmp_path), name)
    (tmp_path / "mainspring.toml").write_text(f"{name} = {toml}\n")
    assert getattr(settings(tmp_path), name) == normal != default
    monkeypatch.setenv(f"MAINSPRING_{name.upper()}", OTHERS.get(name, text))
    by_environment = settings(tmp_path)
    assert by_environment.origins[name].source == "environment"
    assert name not in OTHERS or getattr(by_environment, name) != normal
    by_keyword = settings(tmp_path, **{name: keyword})
    assert (getattr(by_keyword, name), by_keyword.origins[name].source) == (normal, "keyword")


OTHERS = {"url": "sqlite:////b.db", "lease": "9s", "version": "x", "queues": "z", "roles": "worker", "routes": "q=r"}
"""A second value, where one tells more."""


WORKER_SAMPLES = [
    pytest.param("queues", marks=pytest.mark.option("app.queues")),
    pytest.param("async_slots", marks=pytest.mark.option("app.async_slots")),
    pytest.param("thread_slots", marks=pytest.mark.option("app.thread_slots")),
    pytest.param("process_slots", marks=pytest.mark.option("app.process_slots")),
    pytest.param("concurrency", marks=pytest.mark.option("app.concurrency")),
    pytest.param("lease", marks=pytest.mark.option("app.lease")),
    pytest.param("drain", marks=pytest.mark.option("app.drain")),
    pytest.param("poll", marks=pytest.mark.option("app.poll")),
    pytest.param("sweep", marks=pytest.mark.option("app.sweep")),
    pytest.param("grace", marks=pytest.mark.option("app.grace")),
    pytest.param("roles", marks=pytest.mark.option("app.roles")),
    pytest.param("labels", marks=pytest.mark.option("app.labels")),
]


@pytest.mark.parametrize("name", WORKER_SAMPLES)
def test_worker_options_come_from_the_app_unless_they_are_given(name: str) -> None:
    """The tests of each worker option show its effect."""
    keyword, _, _, normal = SAMPLES[name]
    app = Mainspring("sqlite://", **{name: keyword})
    assert getattr(app.parts().settings, name) == normal
    other = {"queues": "only", "concurrency": {"default": 1}, "roles": "scheduler", "labels": "other"}.get(name, 9)
    told: dict[str, Any] = {name: other}
    made = getattr(app.parts(**told).settings, name)
    assert made not in (normal, TABLE[name].default)


def test_the_typed_dictionary_equals_the_table() -> None:
    written = {
        name: (a.__forward_arg__ if isinstance(a, ForwardRef) else str(a)).replace('"', "'")
        for name, a in Settings.__annotations__.items()
    }
    assert written == {name: setting.type for name, setting in TABLE.items() if name not in OF_THE_APP}
    assert not Settings.__total__
    assert set(TABLE) <= set(AppSettings.__annotations__) | set(WorkerOptions.__annotations__)


def test_every_default_is_in_normal_form_and_every_meaning_a_sentence() -> None:
    for name, setting in TABLE.items():
        assert setting.doc.endswith("."), name
        if setting.default is not None and setting.kind not in ("duration", "size"):
            assert setting.convert(setting.default, name) == setting.default
        elif setting.default is not None:
            assert setting.convert(setting.shown_default, name) == setting.default


@pytest.mark.parametrize("name", SAMPLES)
def test_a_shown_value_can_be_given_again(tmp_path: Path, name: str) -> None:
    made = settings(tmp_path, **{name: SAMPLES[name][0]})
    assert getattr(settings(tmp_path, **{name: made.origins[name].value}), name) == getattr(made, name)


class TestKeywords:
    @pytest.mark.parametrize("name", SAMPLES)
    def test_a_bad_keyword_is_refused_at_once(self, name: str) -> None:
        with pytest.raises((InvalidOption, BadUrl)):
            Mainspring(**{name: object()})  # type: ignore[arg-type]  # what the test is about

    def test_an_unknown_keyword_gets_a_suggestion(self) -> None:
        with pytest.raises(UnknownOption, match=r"Mainspring: option 'leese' does not exist; did you mean 'lease'"):
            Mainspring(leese="1s")  # type: ignore[call-arg]  # what the test is about

    @pytest.mark.parametrize("name", sorted(OF_ONE_RUN))
    def test_options_of_one_run_name_their_place(self, name: str) -> None:
        with pytest.raises(UnknownOption, match=rf"app\.run\({name}="):
            Mainspring(**{name: 1})  # type: ignore[arg-type]  # what the test is about

    def test_options_of_tasks_name_their_place(self) -> None:
        with pytest.raises(UnknownOption, match=r"'retries' is an option of @app\.task"):
            Mainspring(retries=3)  # type: ignore[call-arg]  # what the test is about


class TestRoles:
    def test_all_is_every_role(self) -> None:
        assert AppSettings({"roles": "all"}).roles == AppSettings({}).roles == {"api", "worker", "scheduler"}

    @pytest.mark.parametrize("bad", ["", "boss", [], ["worker", "boss"], None, [["worker"]], 1])
    def test_unknown_roles_are_refused(self, bad: Any) -> None:
        with pytest.raises(InvalidOption, match="must be among api, worker, scheduler and all"):
            AppSettings({"roles": bad})

    @pytest.mark.row("C2")
    def test_an_api_process_runs_no_worker(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither embedded nor under a supervisor. The error names the place that set the role."""
        monkeypatch.setenv("MAINSPRING_ROLES", "api")
        app = Mainspring("sqlite://")
        with pytest.raises(
            InvalidOption, match=r"MAINSPRING_ROLES: roles=\['api'\]: includes neither 'worker' nor 'scheduler'"
        ):
            app.worker()
        with pytest.raises(InvalidOption, match="MAINSPRING_ROLES"):
            app.run()
        assert app.parts(roles="worker").settings.roles == {"worker"}, "what is given now goes before"


class TestRetention:
    def test_the_retention_has_the_values_of_the_settings(self) -> None:
        made = AppSettings({"keep": "2d", "keep_count": 5, "keep_dead": "4d", "keep_dead_count": 6})
        day = 86_400_000_000
        assert made.retention == Retention(keep=2 * day, keep_count=5, keep_dead=4 * day, keep_dead_count=6)

    def test_a_keep_shorter_than_the_minimum_lowers_the_minimum(self) -> None:
        assert AppSettings({"keep": "10m"}).retention.keep_at_least == 600_000_000


class TestUrl:
    def test_without_a_url_the_store_is_a_file_beside_the_project(self, tmp_path: Path) -> None:
        (tmp_path / "pyproject.toml").write_text("")
        assert settings(tmp_path / "src").url == f"sqlite:///{tmp_path}/mainspring.db"

    def test_without_a_project_a_url_is_needed_when_it_is_used(self) -> None:
        made = AppSettings({}, None)
        assert made.namespace == "default"
        assert made.origins["url"].value is None
        with pytest.raises(BadUrl, match="interactive session"):
            _ = made.url

    def test_the_password_of_the_url_is_shown_nowhere(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_URL", "postgresql://shop:canary-55-pw@db/shop")
        made = AppSettings({})
        assert made.url.endswith("canary-55-pw@db/shop")
        assert "canary-55-pw" not in f"{made.origins} {made.shown_url}"
        assert redact("said canary-55-pw") == "said ***"

    def test_use_replaces_the_address_of_the_store(self) -> None:
        made = AppSettings({}, None)
        made.use(StoreAddress(url="sqlite://"))
        assert made.address.url == "sqlite://"
        made.use(None)
        with pytest.raises(BadUrl):
            _ = made.address


class TestSchema:
    def test_the_schema_has_every_key_of_the_file(self) -> None:
        found = schema()
        assert list(found["properties"]) == ["app", *TABLE]
        assert found["additionalProperties"] is False
        assert all(described["description"] for described in found["properties"].values())

    def test_the_schema_is_plain_json_with_defaults_and_choices(self) -> None:
        import json

        found = json.loads(json.dumps(schema()))["properties"]
        assert found["log_format"]["enum"] == ["auto", "text", "json"]
        assert found["keep_count"] == {
            "type": "integer", "minimum": 0, "default": 100_000,
            "description": "The maximum number of succeeded and cancelled jobs that are kept.",
        }  # fmt: skip
        assert found["routes"]["additionalProperties"] == {"type": "string"}
        assert "7d" in found["keep"]["description"]

    @pytest.mark.parametrize("name", SAMPLES)
    def test_accepted_values_match_the_schema(self, name: str) -> None:
        import tomllib

        value = tomllib.loads(f"x = {SAMPLES[name][2]}")["x"]
        assert fits(value, schema()["properties"][name])
        assert not fits([[]], schema()["properties"][name])


def fits(value: Any, shape: dict[str, Any]) -> bool:
    """As much of a validator as the schema needs."""
    if "anyOf" in shape:
        return any(fits(value, each) for each in shape["anyOf"])
    if "enum" in shape:
        return value in shape["enum"]
    match shape["type"]:
        case "string":
            return isinstance(value, str)
        case "integer" | "number":
            return isinstance(value, int | float) and value >= shape["minimum"]
        case "boolean":
            return isinstance(value, bool)
        case "array":
            return isinstance(value, list) and all(fits(each, shape["items"]) for each in value)
        case _:
            inner = shape["additionalProperties"]
            return isinstance(value, dict) and all(fits(each, inner) for each in value.values())
