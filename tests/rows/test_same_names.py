"""Two functions of one name: a clash is refused, code that runs again replaces its own tasks."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mainspring import Mainspring
from mainspring.errors import InvalidOption

APP = "from mainspring import Mainspring, Tasks\napp = Mainspring('sqlite://')\n"
TWO_SCHEDULES = """
@app.schedule("invoices", every="1h")
def _(): ...


@app.schedule("cleanup", every="1h")
def _(): ...
"""
TWO_TASKS = """
@app.task
def send(): ...


first = send


@app.task
def send(): ...
"""
TWO_OF_A_LIBRARY = TWO_TASKS.replace("app.", "library.") + "\napp.include(library)\n"


def _write(folder: Path, name: str, text: str) -> Path:
    path = folder / f"{name}.py"
    path.write_text(text)
    importlib.invalidate_caches()
    return path


class TestClash:
    @pytest.mark.parametrize(
        ("module", "text", "lines"),
        [
            ("twice_scheduled", APP + TWO_SCHEDULES, (4, 8)),
            ("twice_declared", APP + TWO_TASKS, (4, 11)),
            ("twice_in_library", APP + "library = Tasks()\n" + TWO_OF_A_LIBRARY, (5, 12)),
        ],
    )
    def test_second_function_of_a_name_is_refused_with_both_places(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, text: str, lines: tuple[int, int]
    ) -> None:
        path = _write(tmp_path, module, text)
        monkeypatch.syspath_prepend(tmp_path)
        with pytest.raises(InvalidOption, match="is already the name of") as refused:
            importlib.import_module(module)
        said = str(refused.value)
        assert all(f"({path}:{line})" in said for line in lines)
        assert "@app.task(name=...)" in said

    def test_second_function_of_a_name_is_refused_in_a_script(self, tmp_path: Path) -> None:
        _write(tmp_path, "script", APP + TWO_SCHEDULES)
        ran = subprocess.run(
            [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, check=False
        )  # fmt: skip
        assert ran.returncode == 1
        assert "script.py:4)" in ran.stderr
        assert "script.py:8)" in ran.stderr

    def test_second_function_of_a_name_is_refused_in_a_function(self) -> None:
        app = Mainspring("sqlite://")

        @app.task
        def send() -> None: ...

        first = send
        with pytest.raises(InvalidOption, match=r"test_same_names\.py:\d+\): name=.*test_same_names\.py:\d+\)"):

            @app.task
            def send() -> None: ...

        assert app.tasks.find(first.name) is first


class TestRunsAgain:
    def test_reloaded_module_replaces_functions_that_moved_to_other_lines(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _write(tmp_path, "moved_app", APP)
        path = _write(tmp_path, "moved", "from moved_app import app\n@app.task\ndef work(): return 1\n")
        monkeypatch.syspath_prepend(tmp_path)
        module = importlib.import_module("moved")
        path.write_text("from moved_app import app\n\n\n@app.task\ndef work(): return 'changed'\n")
        importlib.reload(module)
        assert module.app.tasks.find("moved.work").fn() == "changed"
        path.write_text(path.read_text() + "\n\n@app.task\ndef work(): return 'second'\n")
        with pytest.raises(InvalidOption, match=r"moved\.py:8"):
            importlib.reload(module)

    @pytest.mark.parametrize("files", [("<stdin>", "<stdin>"), ("ipykernel_7/1.py", "ipykernel_7/2.py")])
    def test_notebook_cell_may_define_a_function_again(self, files: tuple[str, str]) -> None:
        home: dict[str, Any] = {"__name__": "cells", "__spec__": None, "app": Mainspring("sqlite://")}
        for n, file in enumerate(files):
            cell = "\n" * n + f"@app.task\ndef work(): return {n}\n"
            exec(compile(cell, file, "exec"), home)
        assert home["app"].tasks.find("cells.work").fn() == 1

    def test_notebook_that_is_a_file_may_define_a_function_again(self, tmp_path: Path) -> None:
        notebook = str(tmp_path / "notebook.py")
        home: dict[str, Any] = {"__name__": "cells", "__file__": notebook, "app": Mainspring("sqlite://")}
        for n in range(2):
            cell = "\n" * n + f"@app.task\ndef work(): return {n}\n"
            exec(compile(cell, "cell_a.py", "exec"), home)
        assert home["app"].tasks.find("cells.work").fn() == 1

    def test_console_may_run_an_edited_file_again(self, tmp_path: Path) -> None:
        """IPython's ``%run -i`` and Spyder's cells run the code of a file in the namespace of the console."""
        path = _write(tmp_path, "edited", "")
        code = f"""if True:
            import sys
            from mainspring import Mainspring
            sys.ps1 = ">>> "
            home = dict(__name__="__main__", __file__={str(path)!r}, app=Mainspring("sqlite://"))
            for n in range(2):
                cell = chr(10) * n + "@app.task\\ndef work(): return %d" % n
                exec(compile(cell, {str(path)!r}, "exec"), home)
            print(home["work"].fn())
        """
        ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
        assert (ran.stdout, ran.stderr) == ("1\n", "")
