"""What C gives to compiled code in place of numba's memory."""

from collections.abc import Callable


def test_blocks_are_what_compiled_code_takes_them_for(c_program: Callable[..., Callable[..., str]]) -> None:
    assert c_program("tests/libos/service/c/memory.c", one_thread=True)() == "ok\n"
