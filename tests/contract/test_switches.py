from mainspring.testing.contract.switches import *  # noqa: F403  # the classes are the tests
