"""Sections from TOML: types, ranges, and errors that say everything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from corelane.runtime import options
from corelane.runtime.errors import ConfigError
from corelane.runtime.options import Group, option


def _even(value: int) -> None:
    if value % 2:
        raise ValueError("an even number")


def _short(name: str) -> None:
    if len(name) > 4:
        raise ValueError("four letters at most")


@dataclass(frozen=True)
class Inner:
    size: int = option(4, "size", low=1, high=10)
    even: int = option(0, "even", check=_even)
    ratio: float = option(0.5, "ratio", low=0, high=1)
    mode: str = option("a", "mode", choices=("a", "b"))
    on: bool = option(False, "on")
    maybe: str | None = option(None, "maybe")
    cores: str | tuple[int, ...] = option("auto", "cores", low=0, high=7)
    words: tuple[str, ...] = option((), "words")

    def check(self) -> None:
        if self.mode == "b" and not self.on:
            raise ValueError("mode b needs on = true")


@dataclass(frozen=True)
class Outer:
    title: str = option("", "title")
    inner: Inner = option(Inner, "the inner one")
    named: dict[str, Inner] = option(dict, "named ones", check=_short)


def refusal(text: str) -> str:
    """The error that a text causes."""
    with pytest.raises(ConfigError) as caught:
        options.loads(Outer, text, "f.toml")
    return str(caught.value)


def test_everything_has_a_default():
    assert options.loads(Outer, "") == Outer()


def test_values_of_all_types():
    text = """
        title = "t"
        [inner]
        size = 10
        ratio = 1
        on = true
        maybe = "x"
        cores = [1, 2]
        words = ["a", "b"]
        [named.one]
        size = 1
    """
    got = options.loads(Outer, text)
    assert got == Outer("t", Inner(10, 0, 1.0, "a", True, "x", (1, 2), ("a", "b")), {"one": Inner(1)})
    assert type(got.inner.ratio) is float


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("size = 11", "f.toml:2: inner.size: is 11 (expected a whole number from 1 to 10)"),
        ("size = 0", "is 0 (expected a whole number from 1 to 10)"),
        ('size = "4"', 'is "4" (expected a whole number from 1 to 10)'),
        ("size = true", "is true (expected a whole number"),
        ("size = 1.0", "is 1.0 (expected a whole number"),
        ("even = 3", "inner.even: is 3 (expected an even number)"),
        ("ratio = nan", "is nan (expected a number from 0 to 1)"),
        ("ratio = 2", "is 2.0 (expected a number from 0 to 1)"),
        ('mode = "c"', 'inner.mode: is "c" (expected one of "a", "b")'),
        ("on = 1", "is 1 (expected true or false)"),
        ("maybe = 5", "is 5 (expected a text in quotes)"),
        ("cores = 3", "is 3 (expected a text in quotes or a list, each a whole number from 0 to 7)"),
        ("cores = [1, 8]", "is 8 (expected a whole number from 0 to 7)"),
        ('words = "a"', 'is "a" (expected a list, each a text in quotes)'),
        ("words = [1]", "is 1 (expected a text in quotes)"),
        ("sise = 1", "f.toml:2: inner.sise: no such option (did you mean 'size'?)"),
        ("xyzzy = 1", "no such option (known here: cores, even, maybe, mode, on, ratio, size, words)"),
        ('mode = "b"', "f.toml:1: inner: mode b needs on = true"),
    ],
)
def test_errors_name_file_line_key_value_and_what_was_expected(line, said):
    assert said in refusal(f"[inner]\n{line}\n")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("inner = 5", "f.toml:1: inner: is 5 (expected a table)"),
        ("named = 5", "named: is 5 (expected a table)"),
        ("named.x = 5", "named.x: is 5 (expected a table)"),
        (
            "[named.toolong]",
            "f.toml:1: named.toolong: the name 'toolong' cannot be used (expected four letters at most)",
        ),
        ("[named.x]\nsize = 99", "f.toml:2: named.x.size: is 99"),
        ("[named.'y']\n\n'size' = 99", "f.toml:3: named.y.size: is 99"),
        ("named = {x = {size = 99}}", "f.toml:1: named.x.size: is 99"),
        ("[inne]", "f.toml:1: inne: no such option (did you mean 'inner'?)"),
        ("[inner", "f.toml: not valid TOML: "),
    ],
)
def test_errors_in_tables(text, said):
    assert said in refusal(text)


def test_missing_file(tmp_path):
    with pytest.raises(ConfigError, match=r"none\.toml: No such file"):
        options.load(Outer, tmp_path / "none.toml")
    (tmp_path / "binary.toml").write_bytes(b"# a\n# f\xfcr\n")
    with pytest.raises(
        ConfigError, match=r"binary\.toml: line 2 is no UTF-8: .* 0xfc \(save it as UTF-8, as TOML is\)"
    ):
        options.load(Outer, tmp_path / "binary.toml")


def test_overrides():
    base = Outer(title="t")
    got = options.override(base, ["inner.size=7", "inner.maybe=hello world", "named.x.on=true"])
    assert got == Outer("t", Inner(7, maybe="hello world"), {"x": Inner(on=True)})
    assert options.override(got, ["named.x.size = 2"]).named == {"x": Inner(2, on=True)}
    assert options.override(base, ["inner.cores=[1,2]"]).inner.cores == (1, 2)
    assert base == Outer(title="t")


@pytest.mark.parametrize(
    ("assignment", "said"),
    [
        ("inner.size", "not of the form key=value"),
        ("=3", "not of the form key=value"),
        ("inner.size=99", "--set inner.size=99: inner.size: is 99 (expected a whole number from 1 to 10)"),
        ("inner.siz=9", "did you mean 'size'?"),
        ("title.x=1", "title is no table"),
        ("named.x=1", "is no table of options"),
        ("named.toolong.size=1", "four letters at most"),
        ("inner.mode=b", "mode b needs on = true"),
    ],
)
def test_overrides_are_checked(assignment, said):
    with pytest.raises(ConfigError) as caught:
        options.override(Outer(), [assignment])
    assert said in str(caught.value)


@pytest.mark.parametrize("assignments", [["inner.mode=b", "inner.on=true"], ["inner.on=true", "inner.mode=b"]])
def test_overrides_that_go_together_may_come_in_any_order(assignments):
    inner = options.override(Outer(), assignments).inner
    assert (inner.mode, inner.on) == ("b", True)
    with pytest.raises(ConfigError, match=r"^the command line: inner: mode b needs on = true"):
        options.override(Outer(), ["inner.size=7", "inner.mode=b"])


def test_sample_is_the_default():
    text = options.sample(Outer, name="one")
    assert "# size: a whole number from 1 to 10\nsize = 4\n" in text
    assert options.loads(Outer, text) == Outer(named={"one": Inner()})


json_like = st.recursive(
    st.one_of(st.booleans(), st.integers(-5, 20), st.floats(), st.text(max_size=3)),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=3), inner, max_size=3)),
    max_leaves=6,
)
keys = st.sampled_from(["size", "even", "ratio", "mode", "on", "maybe", "cores", "words", "other"])


@given(st.dictionaries(keys, json_like, max_size=4))
def test_any_data_is_taken_or_refused_in_one_line(data):
    try:
        got = options._Reader("f", "").section(Outer, {"inner": data}, ())
    except ConfigError as error:
        assert str(error).startswith("f: inner")
        assert "\n" not in str(error).replace("\\n", "")
    else:
        assert isinstance(got.inner, Inner)


@dataclass(frozen=True)
class Free:
    class_: str | None = option(None, "a word of Python's own", choices=("x", "y"))
    numbers: dict[str, int | float] = option(dict, "numbers by name", check=_short)


def test_a_field_with_an_underscore_is_an_option_without():
    assert options.loads(Free, 'class = "y"') == Free(class_="y")
    assert options.loads(Free, "", overrides=["class=x"]) == Free(class_="x")
    with pytest.raises(ConfigError, match=r"clas: no such option \(did you mean 'class'\?\)"):
        options.loads(Free, 'clas = "y"')
    with pytest.raises(ConfigError, match=r"class_: no such option"):
        options.loads(Free, 'class_ = "y"')


def test_a_table_of_values_by_names_of_the_users_own():
    got = options.loads(Free, "[numbers]\na = 1\nb = 2.5", overrides=["numbers.c=3", "numbers.a=4"])
    assert got.numbers == {"a": 4, "b": 2.5, "c": 3}
    assert options.loads(Free, options.sample(Free)) == Free()
    for text, said in (
        ("[numbers]\nlonger = 1", "the name 'longer' cannot be used (expected four letters at most)"),
        ('[numbers]\na = "1"', 'numbers.a: is "1" (expected a whole number or a number)'),
        ("numbers = 3", "numbers: is 3 (expected a table)"),
    ):
        with pytest.raises(ConfigError) as caught:
            options.loads(Free, text)
        assert said in str(caught.value)
    with pytest.raises(ConfigError, match="no such option"):
        options.loads(Free, "", overrides=["numbers.a.b=1"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Made(Group):
    size: int = option(4, "size", low=1, high=10)
    ratio: float = option(0.5, "ratio", low=0, high=1)
    maybe: str | None = option(None, "maybe")
    cores: str | tuple[int, ...] = option("auto", "cores", low=0, high=7)
    inner: Inner = option(Inner, "the inner one")
    free: dict[str, int] = option(dict, "names of one's own")


def test_a_group_made_in_python_takes_what_is_within_its_limits() -> None:
    made = Made(size=10, ratio=1, maybe="x", cores=(0, 7), free={"a": 1})
    assert (made.size, made.ratio, made.maybe, made.cores) == (10, 1, "x", (0, 7))
    assert Made() == Made(maybe=None)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"size": 0}, "Made: size: is 0 (expected a whole number from 1 to 10)"),
        ({"size": True}, "Made: size: is true (expected a whole number from 1 to 10)"),
        ({"size": None}, "Made: size: is None (expected a whole number from 1 to 10)"),
        ({"ratio": "half"}, 'Made: ratio: is "half" (expected a number from 0 to 1)'),
        ({"maybe": 1}, "Made: maybe: is 1 (expected a text in quotes)"),
        ({"cores": (0, 8)}, "Made: cores: is 8 (expected a whole number from 0 to 7)"),
        ({"cores": 3}, "Made: cores: is 3 (expected a text in quotes or a list, each a whole number from 0 to 7)"),
    ],
)
def test_a_group_made_in_python_refuses_the_rest(given: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as refused:
        Made(**given)
    assert str(refused.value) == says


@pytest.mark.parametrize("value", ["[" * 100_000, "9" * 5000, "1e" + "9" * 5000], ids=["deep", "digits", "exponent"])
def test_what_no_parser_takes_is_told(value: str, tmp_path: Path) -> None:
    (tmp_path / "f.toml").write_text(f"size = {value}\n")
    with pytest.raises(ConfigError):
        options.load(Inner, tmp_path / "f.toml")
    with pytest.raises(ConfigError):
        options.override(Inner(), [f"size={value}"])
