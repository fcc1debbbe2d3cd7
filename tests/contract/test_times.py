from mainspring.testing.contract.times import *  # noqa: F403  # the classes are the tests
