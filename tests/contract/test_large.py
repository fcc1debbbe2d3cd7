from mainspring.testing.contract.large import *  # noqa: F403  # the classes are the tests
