"""What the lint of compiled handlers reads."""

from corelane.libos.numba_compile import _unescape


def test_a_backslash_in_llvm_text_is_one_byte():
    """The length of a path may be 92, and then the pickle of an exception holds a backslash."""
    assert _unescape(r"\80\04\95\\\00ab\22") == b'\x80\x04\x95\\\x00ab"'
