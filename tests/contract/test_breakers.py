from mainspring.testing.contract.breakers import *  # noqa: F403  # the classes are the tests
