from mainspring.testing.contract.meetings import *  # noqa: F403  # the classes are the tests
