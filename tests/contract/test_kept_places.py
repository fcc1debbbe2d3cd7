from mainspring.testing.contract.kept_places import *  # noqa: F403  # the classes are the tests
