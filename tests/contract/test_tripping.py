from mainspring.testing.contract.tripping import *  # noqa: F403  # the classes are the tests
