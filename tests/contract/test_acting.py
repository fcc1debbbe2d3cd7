from mainspring.testing.contract.acting import *  # noqa: F403  # the classes are the tests
