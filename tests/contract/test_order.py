from mainspring.testing.contract.order import *  # noqa: F403  # the classes are the tests
