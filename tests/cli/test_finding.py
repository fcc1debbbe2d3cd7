"""Which app a command means."""

from __future__ import annotations

import pytest

from tests.cli.conftest import Ran, Shop

pytestmark = pytest.mark.stores("sqlite")

APP = 'from mainspring import Mainspring\napp = Mainspring("sqlite:///{}.db")\n'


def shows(shop: Shop, *words: str) -> str:
    """The name of the store that the app is of."""
    ran = shop.call(*words, "config", "--json")
    assert ran.code == 0, ran.err
    return ran.out.partition("sqlite:///")[2].partition(".db")[0].rpartition("/")[2]


@pytest.fixture
def apps(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A folder with several apps and none that would be found by itself."""
    monkeypatch.delenv("MAINSPRING_URL")
    (shop.folder / "app.py").unlink()
    (shop.folder / "one.py").write_text(APP.format("one"))
    (shop.folder / "two.py").write_text(APP.format("two") + "other = Mainspring('sqlite:///other.db')\n")
    (shop.folder / "inner").mkdir()
    (shop.folder / "inner" / "deep.py").write_text(APP.format("deep"))
    return shop


@pytest.mark.row("C4")
@pytest.mark.option("cli.app")
@pytest.mark.parametrize(
    ("named", "store"),
    [("one", "one"), ("one:app", "one"), ("one.py", "one"), ("two.py:other", "other"), ("inner.deep:app", "deep")],
)
def test_the_app_is_named_by_module_or_file(apps: Shop, named: str, store: str) -> None:
    assert shows(apps, "-A", named) == store


@pytest.mark.row("C4")
@pytest.mark.option("cli.config.app")
def test_the_flag_overrides_the_environment_and_both_override_the_file(
    apps: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    (apps.folder / "app.py").write_text(APP.format("likely"))
    assert shows(apps) == "likely"
    (apps.folder / "pyproject.toml").write_text('[tool.mainspring]\napp = "inner/deep.py"\n')
    assert shows(apps) == "deep"
    monkeypatch.setenv("MAINSPRING_APP", "two:app")
    assert shows(apps) == "two"
    assert shows(apps, "-A", "one") == "one"
    ran = apps.call("-A", "two:other", "config", "--json", "-A", "one")
    assert "/one.db" in ran.out, "the command's own goes before the group's"


@pytest.mark.row("C4")
@pytest.mark.parametrize("name", ["mainspring.toml", "pyproject.toml"])
def test_a_project_file_applies_in_all_folders_below_it(apps: Shop, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Modules and files that it names are found from there too."""
    head = "[tool.mainspring]\n" if name == "pyproject.toml" else ""
    monkeypatch.chdir(apps.folder / "inner")
    below = Shop(apps.folder / "inner", apps.url)
    (apps.folder / name).write_text(head + 'app = "one:app"\n')
    assert shows(below) == "one"
    (apps.folder / name).write_text(head + 'app = "two.py:app"\n')
    assert shows(below) == "two"


@pytest.mark.parametrize("name", ["app.py", "main.py", "tasks.py"])
def test_a_file_with_a_common_name_and_exactly_one_app_is_used(apps: Shop, name: str) -> None:
    (apps.folder / name).write_text(
        "import mainspring\nback: mainspring.Mainspring = " + "mainspring.Mainspring('sqlite:///x.db')\n"
    )
    assert shows(apps) == "x"


def test_files_with_common_names_are_parsed_and_not_run(apps: Shop) -> None:
    (apps.folder / "main.py").write_text("raise SystemExit('was run')\n")
    (apps.folder / "tasks.py").write_text(APP.format("tasks"))
    assert shows(apps) == "tasks"


@pytest.mark.row("C4")
def test_the_error_lists_the_places_that_were_tried(apps: Shop) -> None:
    (apps.folder / "mainspring.toml").write_text("")
    (apps.folder / "main.py").write_text(APP.format("a") + "b = Mainspring('sqlite:///b.db')\n")
    ran = apps.call("config")
    assert ran.code == 2
    for said in (
        "no app was found",
        "MAINSPRING_APP",
        "mainspring.toml",
        "app.py: does not exist",
        "main.py: creates app, b",
    ):
        assert said in ran.err
    assert "--url" not in ran.err
    assert "--url" in apps.call("jobs", "ls").err, "this one needs no code"


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ("nowhere:app", "No module named 'nowhere'"),
        ("nofile.py", "there is no such file"),
        ("one:ap", "did you mean 'app'?"),
        ("two", "which object is the app? Found: app, other"),
        ("broken", "ZeroDivisionError"),
        ("needs", "No module named 'not_installed'"),
    ],
)
def test_an_app_that_cannot_be_imported_is_reported_with_the_reason(apps: Shop, named: str, says: str) -> None:
    (apps.folder / "broken.py").write_text("1 / 0\n")
    (apps.folder / "needs.py").write_text("import not_installed\n")
    ran = apps.call("config", "-A", named)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("mainspring: ")
    assert says in ran.err
    assert "mainspring/cli" not in ran.err, "only their own code is shown"


def test_a_bad_app_in_the_project_file_is_reported(apps: Shop) -> None:
    (apps.folder / "mainspring.toml").write_text("app = 3\n")
    ran = apps.call("config")
    assert (ran.code, "must be module:object" in ran.err) == (2, True)


@pytest.fixture
def codeless(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> Shop:
    """A store with a job in it and no app near."""
    shop.task("add").enqueue(1)
    (shop.folder / "app.py").unlink()
    monkeypatch.delenv("MAINSPRING_URL")
    return shop


def counted(ran: Ran) -> bool:
    return ran.code == 0 and "shop.add" in ran.out


@pytest.mark.row("C4")
def test_a_url_is_enough_for_commands_that_need_no_code(codeless: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    assert codeless.call("jobs", "ls").code == 2
    assert counted(codeless.call("jobs", "ls", "--url", codeless.url))
    monkeypatch.setenv("MAINSPRING_URL", codeless.url)
    assert counted(codeless.call("jobs", "ls"))
    monkeypatch.delenv("MAINSPRING_URL")
    (codeless.folder / "mainspring.toml").write_text(f'url = "{codeless.url}"\ninclude = ["not_there"]\n')
    assert counted(codeless.call("jobs", "ls")), "the settings file counts, and nothing is imported"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["-A", "app.py", "--url", "sqlite:///x.db"], "give only one of them"),
        (["--namespace", "x"], "needs a store"),
        (["--url", "mysql://x"], "names no store"),
    ],
)
def test_a_url_and_an_app_together_are_refused(codeless: Shop, words: list[str], says: str) -> None:
    ran = codeless.call("jobs", "ls", *words)
    assert (ran.code, says in ran.err) == (2, True), ran.err
