from mainspring.testing.contract.enqueue import *  # noqa: F403  # the classes are the tests
