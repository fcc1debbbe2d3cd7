from mainspring.testing.contract.parts_noted import *  # noqa: F403  # the classes are the tests
