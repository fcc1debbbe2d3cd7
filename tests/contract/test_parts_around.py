from mainspring.testing.contract.parts_around import *  # noqa: F403  # the classes are the tests
