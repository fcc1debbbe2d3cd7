from mainspring.testing.contract.latest import *  # noqa: F403  # the classes are the tests
