"""The whole contract is one import."""

from mainspring.testing import contract
from mainspring.testing.contract import everything


def test_every_module_is_part_of_everything() -> None:
    listed = {cls.__module__.rpartition(".")[2] for name, cls in vars(everything).items() if name.startswith("Test")}
    assert listed == set(contract.MODULES)
