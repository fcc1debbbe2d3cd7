from mainspring.testing.contract.doors import *  # noqa: F403  # the classes are the tests
