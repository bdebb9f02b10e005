"""Finding the user's line that needs what is not there: in LLVM's text with debug information."""

import pytest

from corelane.libos.objects.needs import find_line

TEXT = """
define i32 @"user::f"(ptr %.1) !dbg !5 {
entry:
  %.2 = call i32 @plain(), !dbg !10
  %.3 = call i32 @helper(), !dbg !11
  %.4 = call i32 @PyErr_Clear(), !dbg !12
  ret i32 0
}

define linkonce_odr i32 @helper() {
  %.1 = call i32 @deeper()
  ret i32 %.1
}

define linkonce_odr i32 @deeper() {
  %.1 = load i32, ptr @numba.dynamic.globals.7f
  ret i32 %.1
}

define i32 @plain() {
  ret i32 1
}

!10 = !DILocation(line: 20, column: 1, scope: !5)
!11 = !DILocation(line: 21, column: 1, scope: !5)
!12 = distinct !DILocation(line: 22, column: 1, scope: !5)
"""


@pytest.mark.parametrize(
    ("prefix", "line"), [("Py", 22), ("numba.dynamic.globals", 21), ("plain", 20), ("numba_dict", 0)]
)
def test_the_line_is_that_which_leads_there(prefix: str, line: int) -> None:
    assert find_line(TEXT, "user::f", prefix) == line
