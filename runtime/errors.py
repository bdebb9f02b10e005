"""The one family of exceptions that corelane raises."""

from __future__ import annotations


class CorelaneError(Exception):
    """Something that corelane refuses or cannot do.

    The text is one line that says what failed, why, and what to do about it.
    """
