"""Annotations that are not evaluated when a function is made: as text, or (Python 3.14) not at all until asked for."""

from __future__ import annotations

import sys

import pytest

from tests.traps.conftest import Programs

pytestmark = pytest.mark.stores("sqlite")

TASKS = """
    {future}
    from dataclasses import dataclass
    from typing import TYPE_CHECKING
    from mainspring import Mainspring

    if TYPE_CHECKING:
        from mainspring import AsyncContext, Context

    app = Mainspring(poll="50ms")

    @app.task
    def area(ctx: {q}Context{q}, shape: {q}Box{q}, more: {q}list[Box] | None{q} = None) -> {q}Area{q}:
        boxes = [shape, *(more or [])]
        assert all(isinstance(box, Box) for box in boxes)
        return Area(sum(box.width * box.height for box in boxes), ctx.attempt)

    @app.task
    async def acopy(ctx: {q}AsyncContext{q}, shape: {q}Box{q}) -> {q}Box{q}:
        return shape

    @dataclass
    class Box:
        width: int
        height: {q}int{q}
        label: {q}Label | None{q} = None

    @dataclass
    class Label:
        text: str

    @dataclass
    class Area:
        size: int
        attempt: int
"""

MAIN = """
    from shop import Area, Box, Label, acopy, app, area
    from mainspring.errors import WrongArgument

    box = Box(2, 3, Label("x"))
    one, other = area.enqueue(box, more=[box]), acopy.enqueue(box)
    try:
        area.enqueue("not a box")
    except WrongArgument as error:
        print("refused", "shape" in str(error))
    with app.worker():
        print(one.result(timeout=60) == Area(12, 1), other.result(timeout=60) == box)
"""

FORMS = [("from __future__ import annotations", ""), ("", '"')]
if sys.version_info >= (3, 14):
    FORMS.append(("", ""))


@pytest.mark.parametrize(("future", "quote"), FORMS, ids=["future import", "quoted", "deferred"][: len(FORMS)])
def test_classes_defined_later_and_contexts_imported_for_type_checking_work(
    programs: Programs, future: str, quote: str
) -> None:
    programs.write(shop=TASKS.format(future=future, q=quote), main=MAIN)
    assert programs.run("main.py") == "refused True\nTrue True\n"


def test_a_name_imported_for_type_checking_only_is_a_clear_error(programs: Programs) -> None:
    """At the first enqueue, with the parameter and the fix. The other tasks of the module work."""
    code = """
        from __future__ import annotations
        from typing import TYPE_CHECKING
        from mainspring import Mainspring
        if TYPE_CHECKING:
            from decimal import Decimal
        app = Mainspring(poll="50ms")
        @app.task
        def pay(amount: Decimal, to: str) -> None: ...
        @app.task
        def fine(n: int) -> int:
            return n
        if __name__ == "__main__":
            from mainspring.errors import BadSignature
            fine.enqueue(1)
            try:
                pay.enqueue(1, "x")
            except BadSignature as error:
                print(error)
    """
    programs.write(shop=code)
    said = programs.run("shop.py")
    assert "pay" in said
    assert "'amount'" in said
    assert "TYPE_CHECKING" in said


def test_names_of_a_module_that_is_imported_later_are_found(programs: Programs) -> None:
    """Two modules whose tasks take each other's classes: the annotations are resolved at first use."""
    programs.write(
        shop____init__="",
        shop__app='from mainspring import Mainspring\napp = Mainspring(include=["shop.a", "shop.b"], poll="50ms")\n',
        shop__a="""
            from __future__ import annotations
            from dataclasses import dataclass
            from shop.app import app
            import shop.b

            @dataclass
            class A:
                n: int

            @app.task
            def take_b(b: shop.b.B) -> A:
                return A(b.n)
        """,
        shop__b="""
            from __future__ import annotations
            from dataclasses import dataclass
            from shop.app import app
            import shop.a

            @dataclass
            class B:
                n: int

            @app.task
            def take_a(a: shop.a.A) -> B:
                return B(a.n)
        """,
        main="""
            from shop.app import app
            with app.test() as t:
                one = app.call("shop.a.take_b", {"n": 1}).enqueue()
                other = app.call("shop.b.take_a", {"n": 2}).enqueue()
                t.drain()
                print(one.result(), other.result())
        """,
    )
    assert programs.run("main.py") == "A(n=1) B(n=2)\n"


def test_a_class_inside_a_function_cannot_be_resolved_by_name(programs: Programs) -> None:
    code = """
        from __future__ import annotations
        from dataclasses import dataclass
        from mainspring import Mainspring
        from mainspring.errors import BadSignature

        def main():
            app = Mainspring("sqlite://")

            @dataclass
            class Hidden:
                n: int

            @app.task(name="work")
            def work(hidden: Hidden) -> None: ...

            try:
                work.enqueue(Hidden(1))
            except BadSignature as error:
                print(error)

        main()
    """
    programs.write(main=code)
    said = programs.run("main.py")
    assert "work" in said
    assert "'hidden'" in said
    assert "Hidden" in said
