from mainspring.testing.contract.edges import *  # noqa: F403  # the classes are the tests
