from mainspring.testing.contract.delays import *  # noqa: F403  # the classes are the tests
