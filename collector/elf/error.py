"""The error of whoever reads unwinding information."""


class CfiError(ValueError):
    """No unwinding table can be made of this file; the message says why."""


class CfiTooLarge(CfiError):
    """It takes more than was allowed."""
