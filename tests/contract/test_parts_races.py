from mainspring.testing.contract.parts_races import *  # noqa: F403  # the classes are the tests
