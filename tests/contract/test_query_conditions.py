from mainspring.testing.contract.query.conditions import *  # noqa: F403  # the classes are the tests
