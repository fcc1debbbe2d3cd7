from mainspring.testing.contract.facts import *  # noqa: F403  # the classes are the tests
