"""Scripts: the name under which a program is started is not the name under which its workers import it."""

from __future__ import annotations

import pytest

from tests.traps.conftest import Programs

pytestmark = pytest.mark.stores("sqlite")

SCRIPT = """
    {imports}from mainspring import Mainspring

    app = Mainspring(poll="50ms")

    @app.task
    def add(a: int, b: int) -> int:
        return a + b

    if __name__ == "__main__":
        import sys
        job = add.enqueue(1, 2)
        code = app.run(until_empty=True)
        print(add.name, job.result(timeout=60), code, "app" in sys.modules or "shop.app" in sys.modules)
"""


@pytest.mark.parametrize(
    ("file", "arguments", "cwd", "name"),
    [
        ("app", ["app.py"], "", "app.add"),
        ("app", ["../app.py"], "elsewhere", "app.add"),
        ("app", ["-m", "app"], "", "app.add"),
        ("shop__app", ["-m", "shop.app"], "", "shop.app.add"),
        ("shop__app", ["shop/app.py"], "", "shop.app.add"),
        ("shop____main__", ["-m", "shop"], "", "shop.add"),
        ("shop____main__", ["shop/__main__.py"], "", "shop.add"),
    ],
    ids=["file", "file elsewhere", "module", "module in a package", "file in a package", "package", "its file"],
)
def test_a_script_enqueues_and_its_workers_find_the_task(
    programs: Programs, file: str, arguments: list[str], cwd: str, name: str
) -> None:
    """The script is not imported a second time in its own process."""
    (programs.folder / "elsewhere").mkdir()
    programs.write(**{file: SCRIPT.format(imports="")})
    if file.startswith("shop"):
        programs.write(shop____init__="")
    assert programs.run(*arguments, cwd=cwd, quiet=False).split("\n")[0] == f"{name} 3 0 False"


def test_a_job_of_a_script_runs_in_a_worker_that_imports_it(programs: Programs) -> None:
    """``python app.py`` enqueues and ``mainspring worker app:app`` runs the job: both use one task name."""
    code = """
        from mainspring import Mainspring
        app = Mainspring(poll="50ms")
        @app.task
        def add(a: int, b: int) -> int:
            return a + b
        if __name__ == "__main__":
            print(add.enqueue(1, 2).id)
    """
    programs.write(app=code)
    job = programs.run("app.py").strip()
    programs.run("-m", "mainspring", "worker", "app:app", "--until-empty", quiet=False)
    assert programs.run("-c", f"import app; print(app.add.job('{job}').result(timeout=60))") == "3\n"


TASKS = """
    from mainspring import Mainspring
    app = Mainspring("sqlite:///jobs.db", name="shop", poll="50ms")
    @app.task
    def add(a: int, b: int) -> int:
        return a + b
"""


@pytest.mark.parametrize("cwd", ["", "shop"])
def test_a_worker_of_a_file_in_a_package_runs_jobs_of_programs_that_import_the_package(
    programs: Programs, cwd: str
) -> None:
    """The web application imports ``shop.tasks``; ``mainspring worker shop/tasks.py`` names its tasks alike."""
    programs.write(shop____init__="", shop__tasks=TASKS)
    (programs.folder / "pyproject.toml").touch()
    enqueued = "from shop.tasks import add; print(add.name, add.enqueue(1, 2).id)"
    name, job = programs.run("-c", enqueued).split()
    assert name == "shop.tasks.add"
    target = "tasks.py" if cwd else "shop/tasks.py"
    programs.run("-m", "mainspring", "worker", target, "--until-empty", quiet=False, cwd=cwd)
    assert programs.run("-c", f"from shop.tasks import add; print(add.job('{job}').result(timeout=60))") == "3\n"


def test_a_file_of_a_package_may_import_its_neighbours_without_the_package(programs: Programs) -> None:
    programs.write(shop____init__="", shop__prices="PRICE = 3\n", shop__tasks="    from prices import PRICE\n" + TASKS)
    programs.run("-m", "mainspring", "worker", "shop/tasks.py", "--until-empty", quiet=False)


def test_a_file_that_is_imported_under_two_names_is_refused(programs: Programs) -> None:
    """Tasks of ``orders`` would be added to the app of ``tasks``, and the worker runs the app of ``shop.tasks``."""
    programs.write(shop____init__="", shop__orders="from tasks import app\n", shop__tasks=TASKS + "    import orders\n")
    said = programs.run("-m", "mainspring", "worker", "shop/tasks.py", "--until-empty", quiet=False, code=1)
    assert "is imported under two names, 'shop.tasks' and 'tasks', so its app exists twice" in said
    assert "Import it as shop.tasks everywhere, or remove " in said


def test_a_script_without_a_main_guard_is_reported(programs: Programs) -> None:
    """The child that imports the script prints the fix once, and the program ends."""
    code = """
        from mainspring import Mainspring
        app = Mainspring()
        app.run(until_empty=True)
        print("over")
    """
    programs.write(app=code)
    said = programs.run("app.py", quiet=False)
    assert said.count("NoMainGuard") == 1
    assert 'if __name__ == "__main__":' in said
    assert said.startswith("over\n")


def test_multiprocessing_without_a_main_guard_enqueues_in_each_child(programs: Programs) -> None:
    """An enqueue at the top level of a script runs again in each spawned child, as all code there does."""
    code = """
        import multiprocessing
        from mainspring import Mainspring
        app = Mainspring(poll="50ms")
        @app.task(name="add")
        def add(a: int, b: int) -> int:
            return a + b
        add.options(key="once").enqueue(1, 2)
        def nothing(): ...
        if __name__ == "__main__":
            child = multiprocessing.get_context("spawn").Process(target=nothing)
            child.start()
            child.join()
            print(child.exitcode, app.jobs.count().total)
    """
    programs.write(app=code)
    assert programs.run("app.py") == "0 1\n"


def test_circular_imports_between_modules_with_tasks_work(programs: Programs) -> None:
    """Each module imports the app and the other's tasks. ``include`` is imported at first use."""
    programs.write(
        shop____init__="",
        shop__app="""
            from mainspring import Mainspring
            app = Mainspring(include=["shop.orders", "shop.mails"], poll="50ms")
        """,
        shop__orders="""
            from shop.app import app
            import shop.mails as mails

            @app.task
            def order(n: int) -> str:
                mails.confirm.enqueue(n)
                return f"ordered {n}"
        """,
        shop__mails="""
            from shop.app import app
            import shop.orders

            @app.task
            def confirm(n: int) -> str:
                return f"confirmed {n}"

            @app.task
            def reorder(n: int) -> str:
                shop.orders.order.enqueue(n + 1)
                return "again"
        """,
        main="""
            from shop.app import app
            job = app.call("shop.mails.reorder", 1).enqueue()
            with app.worker():
                print(job.result(timeout=60))
                while app.jobs.count().live:
                    pass
            print(sorted(info.task for info in app.jobs.iterate()))
        """,
    )
    said = programs.run("main.py").split("\n")
    assert said[:2] == ["again", "['shop.mails.confirm', 'shop.mails.reorder', 'shop.orders.order']"]
    for first in ("shop.orders", "shop.mails"):
        assert programs.run("-c", f"import {first}, shop.app; print(len(shop.app.app.tasks))") == "3\n"


def test_the_module_of_the_app_can_be_named_in_include(programs: Programs) -> None:
    """Whichever module is imported first."""
    code = """
        from mainspring import Mainspring
        app = Mainspring(include=["app"], poll="50ms")
        @app.task
        def one() -> int:
            return 1
        if __name__ == "__main__":
            job = one.enqueue()
            print(app.run(until_empty=True), job.result(timeout=60), one.name)
    """
    programs.write(app=code)
    assert "0 1 app.one" in programs.run("app.py", quiet=False)
