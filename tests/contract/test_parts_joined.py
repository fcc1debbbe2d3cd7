from mainspring.testing.contract.parts_joined import *  # noqa: F403  # the classes are the tests
