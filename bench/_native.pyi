# Compiled by cffi from this floor's headers at build time; cffi's own objects carry no types.
from typing import Any

ffi: Any
lib: Any
