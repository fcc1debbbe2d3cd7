from mainspring.testing.contract.turns import *  # noqa: F403  # the classes are the tests
