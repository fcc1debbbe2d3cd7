from mainspring.testing.contract.depth import *  # noqa: F403  # the classes are the tests
