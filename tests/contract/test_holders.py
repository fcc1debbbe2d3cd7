from mainspring.testing.contract.holders import *  # noqa: F403  # the classes are the tests
