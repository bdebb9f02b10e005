"""python -m sanitized EXTENSION pytest|PROGRAM [ARGUMENT...]: with that module as corelane.libos._asyncio."""

from __future__ import annotations

import importlib.util
import runpy
import sys

from . import NAME


def take(path: str) -> None:
    """Have it be the one that is imported by that name."""
    package, _, name = NAME.rpartition(".")
    above = importlib.import_module(package)
    spec = importlib.util.spec_from_file_location(NAME, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules[NAME] = module
    setattr(above, name, module)


def main() -> None:
    _, extension, program, *words = sys.argv
    take(extension)
    if program == "pytest":
        import pytest

        sys.exit(pytest.main(words))
    sys.argv = [program, *words]
    runpy.run_path(program, run_name="__main__")


if __name__ == "__main__":
    main()
