from mainspring.testing.contract.jobs.marks_and_notes import *  # noqa: F403  # the classes are the tests
