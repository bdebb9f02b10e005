"""What the lint of compiled handlers reads."""

from corelane.libos.handlers.lint import _unescape


def test_a_backslash_in_llvm_text_is_one_byte():
    """A pickle of 92 bytes holds a backslash: its length."""
    assert _unescape(r"\80\04\95\\\00ab\22") == b'\x80\x04\x95\\\x00ab"'
