"""The list of what a store under construction passes names classes that exist."""

from mainspring.testing import contract
from mainspring.testing.contract import everything


def test_every_name_of_the_slice_is_a_class_of_the_contract() -> None:
    assert [name for name in contract.SLICE if not hasattr(everything, name)] == []


def test_every_module_is_part_of_everything() -> None:
    listed = {cls.__module__.rpartition(".")[2] for name, cls in vars(everything).items() if name.startswith("Test")}
    assert listed == set(contract.MODULES)
