from mainspring.testing.contract.modes import *  # noqa: F403  # the classes are the tests
