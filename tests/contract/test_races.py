from mainspring.testing.contract.races import *  # noqa: F403  # the classes are the tests
