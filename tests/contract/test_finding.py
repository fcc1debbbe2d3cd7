from mainspring.testing.contract.finding import *  # noqa: F403  # the classes are the tests
