from mainspring.testing.contract.tallying import *  # noqa: F403  # the classes are the tests
