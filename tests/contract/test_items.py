from mainspring.testing.contract.items import *  # noqa: F403  # the classes are the tests
