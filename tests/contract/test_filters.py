from mainspring.testing.contract.filters import *  # noqa: F403  # the classes are the tests
