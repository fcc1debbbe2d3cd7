from mainspring.testing.contract.parts import *  # noqa: F403  # the classes are the tests
