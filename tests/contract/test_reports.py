from mainspring.testing.contract.reports import *  # noqa: F403  # the classes are the tests
