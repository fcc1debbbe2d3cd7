from mainspring.testing.contract.swapping import *  # noqa: F403  # the classes are the tests
