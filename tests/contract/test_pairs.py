from mainspring.testing.contract.pairs import *  # noqa: F403  # the classes are the tests
