"""Counts lines of code of the worked examples: PYTHONPATH=tests/support python -m countlines [PAGE]

Lines that are blank, or comments and docstrings alone, do not count. Without PAGE the table is printed. With it it goes
between the two lines `<!-- lines: begin -->` and `<!-- lines: end -->` of that page.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
SERVERS = ("c_limiter.c", "numba_limiter.py", "asyncio_limiter.py")
MARKED = re.compile(r"(<!-- lines: begin -->\n).*?(<!-- lines: end -->)", re.S)
NOT_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def count_c(text: str) -> int:
    """Lines of C. No string may look like a comment."""
    bare = re.sub(r"/\*.*?\*/", lambda m: "\n" * m[0].count("\n"), text, flags=re.S)
    return sum(bool(re.sub(r"//.*", "", line).strip()) for line in bare.splitlines())


def count_python(text: str) -> int:
    """Lines of Python."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and ast.get_docstring(
            node
        ):
            said = node.body[0]
            lines -= set(range(said.lineno, (said.end_lineno or said.lineno) + 1))
    return len(lines)


def count(path: Path) -> int:
    """Lines of code of a file."""
    return (count_python if path.suffix == ".py" else count_c)(path.read_text())


def table() -> str:
    """The servers and their lines, in Markdown."""
    rows = [f"| `examples/{name}` | {count(EXAMPLES / name)} |\n" for name in SERVERS]
    return "| server | lines of code |\n|---|---:|\n" + "".join(rows)


def filled(page: str) -> str:
    """A page's text with the table in its place."""
    text, times = MARKED.subn(lambda m: m[1] + table() + m[2], page)
    if times != 1:
        sys.exit("the page has no lines `<!-- lines: begin -->` and `<!-- lines: end -->`")
    return text


if __name__ == "__main__":
    if len(sys.argv) > 1:
        page = Path(sys.argv[1])
        page.write_text(filled(page.read_text()))
    else:
        print(table(), end="")
