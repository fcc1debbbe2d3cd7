from mainspring.testing.contract.query.find_and_count import *  # noqa: F403  # the classes are the tests
