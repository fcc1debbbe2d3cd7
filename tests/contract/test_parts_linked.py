from mainspring.testing.contract.parts_linked import *  # noqa: F403  # the classes are the tests
