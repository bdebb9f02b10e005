"""resp: a store of typed values that speaks Redis' protocols, RESP2 and RESP3, over TCP.

What it owns, what lies where and how it keeps its promises: README.md beside this file.
"""

from .engine import Client, Engine

__all__ = ["Client", "Engine"]
