from mainspring.testing.contract.keeping import *  # noqa: F403  # the classes are the tests
