from mainspring.testing.contract.documents import *  # noqa: F403  # the classes are the tests
