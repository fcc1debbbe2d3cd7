from mainspring.testing.contract.rescues import *  # noqa: F403  # the classes are the tests
