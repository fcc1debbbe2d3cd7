from mainspring.testing.contract.jobs.stream_items import *  # noqa: F403  # the classes are the tests
