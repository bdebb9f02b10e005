"""Memory that batch work can give back, in compiled code (corelane/libos/elastic.h). Importing this module imports
numba."""

from __future__ import annotations

from numba import types

from .memory import external

__all__ = ["elastic_limit", "elastic_use"]

elastic_limit = external("cl_elastic_limit", types.int64, types.uint64)
elastic_use = external("cl_elastic_use", types.int64, types.uint64, types.uint64)
