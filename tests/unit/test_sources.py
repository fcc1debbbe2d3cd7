"""Settings from environment and file: what is read, what is refused, and what the refusal says."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from mainspring.errors import ConfigError, InvalidOption, UnknownOption
from mainspring.settings.settings import AppSettings
from mainspring.settings.sources import OUR_OWN


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("MAINSPRING_"):
            monkeypatch.delenv(name)


def settings(folder: Path, **given: Any) -> AppSettings:
    """Of an app that a file in that folder makes."""
    return AppSettings(given, str(folder / "shop.py"))


def written(folder: Path, text: str, name: str = "mainspring.toml") -> Path:
    (folder / name).write_text(text)
    return folder / name


class TestEnvironment:
    def test_an_unknown_variable_stops_the_start_with_a_suggestion(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("MAINSPRING_LEESE", "1s")
        with pytest.raises(UnknownOption, match=r"MAINSPRING_LEESE.*did you mean 'MAINSPRING_LEASE'"):
            settings(tmp_path).load()

    @pytest.mark.parametrize("name", ["PROCESSES", "UNTIL_EMPTY"])
    def test_a_worker_flag_is_no_variable_and_the_error_names_its_place(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        monkeypatch.setenv(f"MAINSPRING_{name}", "2")
        with pytest.raises(UnknownOption, match="flag of mainspring worker"):
            settings(tmp_path).load()

    @pytest.mark.parametrize(
        "name",
        [
            *sorted(OUR_OWN - {"MAINSPRING_CONFIG"}), "MAINSPRING_TEST_DIR", "MAINSPRING_DEV_NO_UV",
            "MAINSPRING_SERVICE_HOST", "MAINSPRING_SERVICE_PORT", "MAINSPRING_SERVICE_PORT_HTTP", "MAINSPRING_PORT",
            "MAINSPRING_PORT_6379_TCP_ADDR", "MAINSPRING_WORKER_SERVICE_HOST", "MAINSPRING_WORKER_PORT_80_TCP",
        ],
    )  # fmt: skip
    def test_our_own_variables_and_those_of_a_cluster_are_ignored(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
    ) -> None:
        """An unknown variable would raise ``UnknownOption``."""
        monkeypatch.setenv(name, "10.0.0.1")
        settings(tmp_path).load()

    @pytest.mark.parametrize(
        ("name", "text", "says"),
        [
            ("LEASE", "soon", "MAINSPRING_LEASE: lease='soon': cannot be read as a duration"),
            ("PAYLOAD_LIMIT", "9MB", "MAINSPRING_PAYLOAD_LIMIT: payload_limit='9MB': must be from 1 byte to 8MB"),
            ("PAYLOAD_LIMIT", "1M", "MAINSPRING_PAYLOAD_LIMIT: payload_limit='1M': unknown unit 'M'"),
            ("KEEP_COUNT", "many", "MAINSPRING_KEEP_COUNT: keep_count='many': must be a whole number"),
            ("KEEP_COUNT", "1.5", "MAINSPRING_KEEP_COUNT: keep_count='1.5': must be a whole number"),
            ("CONCURRENCY", "email", "MAINSPRING_CONCURRENCY: concurrency='email': 'email' is not NAME=VALUE"),
            ("CONCURRENCY", "0", "MAINSPRING_CONCURRENCY: concurrency=0: must be a whole number"),
            ("CONCURRENCY", "a=1,a=2", "MAINSPRING_CONCURRENCY: concurrency='a=1,a=2': 'a' is given twice"),
            ("CONCURRENCY", "a=x", "MAINSPRING_CONCURRENCY: concurrency['a']='x': must be a whole number"),
            ("ROUTES", "a=b c", "MAINSPRING_ROUTES: routes['a']='b c': is not a queue name"),
            ("QUEUES", "a,-b", "MAINSPRING_QUEUES: queues='-b': is not a queue name"),
            ("ROLES", "boss", "MAINSPRING_ROLES: roles=['boss']: must be among api, worker, scheduler and all"),
            ("URL", "mysql://u:hunter2@h/d", "MAINSPRING_URL: store URL 'mysql://u:***@h/d': names no store"),
            ("NAMESPACE", "No Name", "MAINSPRING_NAMESPACE: namespace='No Name': is not a namespace"),
            ("INCLUDE", "a,b c", "MAINSPRING_INCLUDE: include='b c': is not the name of a module"),
            ("LOG_LEVEL", "loud", "MAINSPRING_LOG_LEVEL: log_level='loud': must be one of debug, info"),
            ("LOG_FORMAT", "xml", "MAINSPRING_LOG_FORMAT: log_format='xml': must be one of auto, text, json"),
            ("DURABILITY", "none", "MAINSPRING_DURABILITY: durability='none': must be one of full, normal"),
        ],
    )  # fmt: skip
    def test_a_bad_value_is_reported_with_its_variable_and_the_reason(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, text: str, says: str
    ) -> None:
        monkeypatch.setenv(f"MAINSPRING_{name}", text)
        with pytest.raises(ConfigError, match=re.escape(says)):
            settings(tmp_path).load()

    def test_an_empty_variable_counts_as_not_set(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_LEASE", " ")
        assert settings(tmp_path).origins["lease"].source == "default"

    def test_the_environment_is_read_at_first_use(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        made = settings(tmp_path)
        monkeypatch.setenv("MAINSPRING_VERSION", "v7")
        assert made.version == "v7"
        monkeypatch.setenv("MAINSPRING_VERSION", "v8")
        assert made.version == "v7", "read once: all parts of a program see the same"


class TestFile:
    def test_an_unknown_key_stops_the_start_with_path_and_suggestion(self, tmp_path: Path) -> None:
        path = written(tmp_path, 'leese = "1s"\n')
        with pytest.raises(UnknownOption, match=rf"{re.escape(str(path))}: option 'leese'.*did you mean 'lease'"):
            settings(tmp_path).load()

    def test_a_key_of_pyproject_is_reported_with_its_table(self, tmp_path: Path) -> None:
        path = written(tmp_path, '[tool.mainspring]\nleese = "1s"\n', "pyproject.toml")
        says = rf"{re.escape(str(path))}: option 'tool.mainspring.leese'.*did you mean 'tool.mainspring.lease'"
        with pytest.raises(UnknownOption, match=says):
            settings(tmp_path).load()

    @pytest.mark.parametrize(
        ("text", "says"),
        [
            ('lease = "soon"', "mainspring.toml: lease: lease='soon': cannot be read as a duration"),
            ("lease = true", "mainspring.toml: lease: lease=True: a duration cannot be bool"),
            ("lease = 2020-01-01", "mainspring.toml: lease: lease="),
            ('thread_slots = "4"', "mainspring.toml: thread_slots: thread_slots='4': must be a whole number"),
            ("[routes]\na = 1", "mainspring.toml: routes: routes['a']=1: is not a queue name"),
            ('routes = "a=b"', "mainspring.toml: routes: routes='a=b': must map tasks to queues"),
            ("[concurrency]\nemail = 0", "mainspring.toml: concurrency: concurrency['email']=0: must be a whole"),
            ("app = 1", "mainspring.toml: app: app=1: must be module:object"),
            ("url = 'mysql://x'", "mainspring.toml: url: store URL 'mysql://x': names no store"),
            ("redact = 'card'", "mainspring.toml: redact: redact='card': must be a list of names"),
            ("lease = ", "mainspring.toml: cannot be read: Invalid value (at"),
        ],
    )
    def test_a_bad_value_is_reported_with_file_key_and_reason(self, tmp_path: Path, text: str, says: str) -> None:
        written(tmp_path, text)
        with pytest.raises(ConfigError, match=re.escape(f"{tmp_path}/{says}")):
            settings(tmp_path).load()

    def test_a_bad_value_stops_the_start_also_when_another_place_overrides_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        written(tmp_path, 'lease = "soon"')
        monkeypatch.setenv("MAINSPRING_LEASE", "5s")
        with pytest.raises(InvalidOption, match=r"mainspring\.toml: lease"):
            settings(tmp_path, lease="6s").load()

    def test_the_nearest_project_above_the_declaring_file_is_used(self, tmp_path: Path) -> None:
        written(tmp_path, 'version = "outer"')
        inner = tmp_path / "inner" / "package"
        inner.mkdir(parents=True)
        assert settings(inner).version == "outer"
        written(inner.parent, 'version = "inner"')
        assert settings(inner).version == "inner"

    def test_a_pyproject_without_our_table_has_no_effect(self, tmp_path: Path) -> None:
        written(tmp_path, '[project]\nname = "mainspring-user"\n', "pyproject.toml")
        assert {origin.source for origin in settings(tmp_path).origins.values()} == {"default"}

    def test_two_files_with_settings_are_refused(self, tmp_path: Path) -> None:
        written(tmp_path, 'version = "a"')
        written(tmp_path, '[tool.mainspring]\nversion = "b"\n', "pyproject.toml")
        with pytest.raises(ConfigError, match=r"mainspring\.toml and .*pyproject\.toml .* both contain settings"):
            settings(tmp_path).load()

    def test_a_settings_file_can_be_named(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        written(tmp_path, 'version = "project"')
        named = written(tmp_path, 'version = "named"', "other.toml")
        monkeypatch.setenv("MAINSPRING_CONFIG", str(named))
        assert settings(tmp_path).origins["version"] == ("named", "file", f"{named}: version")
        assert AppSettings({}, None).version == "named", "also without a project"

    def test_a_named_file_must_exist(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("MAINSPRING_CONFIG", "nowhere.toml")
        with pytest.raises(ConfigError, match=r"MAINSPRING_CONFIG=nowhere\.toml: there is no such file"):
            settings(tmp_path).load()

    def test_paths_in_the_file_are_relative_to_the_file(self, tmp_path: Path) -> None:
        written(tmp_path, 'url = "sqlite:///data/jobs.db"\nlog_file = "log/all.log"')
        made = settings(tmp_path)
        assert made.url == f"sqlite:///{tmp_path}/data/jobs.db"
        assert made.log_file == f"{tmp_path}/log/all.log"

    @pytest.mark.parametrize("url", ["sqlite:////var/jobs.db", "sqlite://", "sqlite:///:memory:", "redis://h/0"])
    def test_other_urls_are_unchanged(self, tmp_path: Path, url: str) -> None:
        written(tmp_path, f'url = "{url}"\nlog_file = "stdout"')
        assert (settings(tmp_path).url, settings(tmp_path).log_file) == (url, "stdout")

    def test_names_with_dots_need_no_quotes(self, tmp_path: Path) -> None:
        written(tmp_path, '[routes]\nshop.mail.send = "now"\n"shop.*" = "shop"\n[concurrency]\nmail.eu = 2')
        made = settings(tmp_path)
        assert made.routes.table == {"shop.mail.send": "now", "shop.*": "shop"}
        assert made.worker({})["concurrency"] == {"mail.eu": 2}
