"""What a grader raises when a sample cannot be graded."""


class UngradableError(ValueError):
    """The sample's data does not say what its grader needs; the message says what is missing.

    Neither 0 nor an end of the run would be right: the sample fails with this reason.
    """
