from mainspring.testing.contract.terms import *  # noqa: F403  # the classes are the tests
