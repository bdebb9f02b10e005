"""Probes leave what a function computes as it was, and are met often.

Strips of a turn or two and next to no fuel make every path of the inserted code run."""

from __future__ import annotations

import re

import numba
import numpy as np
import pytest
from cltest import soak
from hypothesis import given, settings
from hypothesis import strategies as st
from llvmlite import binding as llvm
from numba.core import config
from numba.core.codegen import get_host_cpu_features
from probing import LOOKS, looks, probed, tiny

from corelane.libos.batch_work import compile as batch_compile
from corelane.libos.batch_work import refill as batch_refill
from corelane.libos.batch_work import work as batch_work
from corelane.libos.batch_work.compile import ProbedLibrary, default_target, probed_compiler
from corelane.libos.batch_work.ir import parse, types_of


@numba.njit
def pair(x, y):
    return (y, x) if x > y else (x, y)


LONG = pytest.mark.soak(takes_s=2)

# Lines whose code numba takes from its own library: what they need ahead of the loops, and they.
LIBRARY = {
    "dict": ("d = {0: 0}", "if s % 7 in d:\n    d[s % 7] += 1\nelse:\n    d[s % 7] = 1\nt += d[s % 7]"),
    "set": ("q = {0}", "q.add(s % 11)\nt += len(q)"),
    "list": ("l = [0]", "l.append(s % 13)\nif len(l) > 20:\n    t += l.pop() + l.pop()"),
    "string": ("w = ''", "w += 'abc'[s % 3]\nif len(w) > 9:\n    t += w.find('ca')\n    w = w[7:]"),
    "tuple": ("e = (1, 2)", "e = pair(e[0] + s % 3, e[1] + s % 5)\nt += e[0]"),
    "try": ("k = 0", "try:\n    if s % 5 == 1:\n        raise ValueError\n    k += 1\nexcept Exception:\n    t += k"),
    "random": ("np.random.seed(3)", "t += int(np.random.random() * 100)"),
}


def source_of(draw, depth=0, library=()):
    """Lines of a random loop nest over the variables of `nest` below. The outer loop's count is not known ahead: LLVM
    unrolls a nest of a few turns, and then there is no loop to probe."""
    kind = draw(st.sampled_from(["up", "down", "step", "while", "array", "enumerate", "plain", "held"]))
    v = f"i{depth}"
    bound = draw(st.sampled_from(["n", "m", "n + m", "min(n, 33)", *(["7"] if depth else [])]))
    head = {
        "up": f"for {v} in range({bound}):",
        "down": f"for {v} in range({bound}, {draw(st.integers(-3, 2))}, {draw(st.sampled_from([-1, -2, -3]))}):",
        "step": f"for {v} in range({draw(st.integers(-2, 3))}, {bound}, {draw(st.sampled_from([2, 3, 5, 8]))}):",
        "held": f"r{depth} = range(1, {bound}, 2)\nfor {v} in r{depth}:",
        "while": f"{v} = 0\nwhile {v} < {bound} and s % 1001 != 17:\n    {v} += {draw(st.integers(1, 3))}",
        "array": f"for {v} in a:",
        "enumerate": f"for {v}, x{depth} in enumerate(a):",
        "plain": f"for {v} in range({bound}):",
    }[kind]
    body = [f"s = (s * {draw(st.integers(1, 9))} + {v} * {draw(st.integers(-4, 4))} + a[s % len(a)]) % 100003"]
    if draw(st.booleans()):
        body.append(f"a[{v} % len(a)] += s % 5")
    if library:
        body += LIBRARY[draw(st.sampled_from(library))][1].split("\n")
    if depth < 2 and draw(st.booleans()):
        body += source_of(draw, depth + 1, library).split("\n")
    way = draw(st.sampled_from(["", "", "break", "continue", "return s", "raise ValueError"]))
    if way:
        body.append(f"if s % {draw(st.sampled_from([97, 997, 9973]))} == 3:\n        {way}".replace("        ", "    "))
    body.append(f"t += {v}")
    lines = "\n".join(body).replace("\n", "\n    ")
    otherwise = "\nelse:\n    s += 1" if draw(st.booleans()) else ""
    return f"{head}\n    {lines}{otherwise}"


@st.composite
def nests(draw, library=()):
    lines = [LIBRARY[kind][0] for kind in library]
    lines += [source_of(draw, library=library) for _ in range(draw(st.integers(1, 2)))]
    body = "\n".join(lines).replace("\n", "\n    ")
    return f"def nest(a, n, m):\n    s, t = 1, 0\n    {body}\n    return s * 7 + t\n"


def outcome(function, *args):
    try:
        return function(*args)
    except ValueError:
        return "ValueError"


def check_nest(text, numbers, small):
    """The probed function computes what Python does."""
    monkeypatch = pytest.MonkeyPatch()
    try:
        if small:
            tiny(monkeypatch)
        space: dict = {"np": np, "pair": pair}
        exec(text, space)
        made, _ = probed(space["nest"])
        for n, m in numbers:
            ours, python = np.arange(1, 30), np.arange(1, 30)
            got, expected = outcome(made, ours, n, m), outcome(space["nest"], python, n, m)
            assert got == expected, (text, n, m)
            assert np.array_equal(ours, python), (text, n, m)
        report = made.overloads[made.signatures[0]].library.report
        assert report.missing == "", text
        assert report.functions > 0, text
    finally:
        monkeypatch.undo()


NUMBERS = st.lists(st.tuples(st.integers(-2, 40), st.integers(0, 90)), min_size=3, max_size=3)


@pytest.mark.soak(short=True, takes_s=60)
@pytest.mark.parametrize("small", [False, True])
@settings(max_examples=soak.examples(3, 80), deadline=None, derandomize=True)
@given(data=st.data())
def test_random_loop_nests_compute_the_same(small, data):
    check_nest(data.draw(nests()), data.draw(NUMBERS), small)


@pytest.mark.soak(short=True, takes_s=30)
@pytest.mark.parametrize("kind", [k for k in LIBRARY if k != "string" or soak.SOAKS])  # which takes numba 6 s
@settings(max_examples=soak.examples(1, 10), deadline=None, derandomize=True)
@given(data=st.data())
def test_random_loop_nests_with_code_of_numbas_own_compute_the_same(kind, data):
    """With and without next to no fuel in one test, since compiling what numba's own code needs takes longest; in make
    test, where that is most of what the test takes, with one of them."""
    sizes = (False, True) if soak.SOAKS else (list(LIBRARY).index(kind) % 2 > 0,)
    other = data.draw(st.sampled_from([kind, *sorted(LIBRARY.keys() - {kind})]))  # the first example has one kind
    for small in sizes:
        check_nest(data.draw(nests(library=tuple({kind: 0, other: 0}))), data.draw(NUMBERS), small)


def total(a):
    s = 0
    for x in a:
        s += x
    return s


def saxpy(k, x, y):
    for i in range(len(x)):
        y[i] += k * x[i]


def stencil(x, y):
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = x[i, j] + 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


def float_total(a):
    s = 0.0
    for x in a:
        s += x
    return s


def fresh(name):
    rng = np.random.default_rng(3)
    return {
        "total": (rng.integers(0, 1 << 40, 400_003),),
        "float_total": (rng.random(400_003),),
        "saxpy": (0.5, rng.random(400_003), rng.random(400_003)),
        "stencil": (rng.random((301, 403)), np.zeros((301, 403))),
    }[name]


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("function", [total, float_total, saxpy, stencil])
def test_results_are_those_of_njit_bit_for_bit(function, small, monkeypatch):
    if small:
        tiny(monkeypatch)
    made, plain = probed(function)
    ours, theirs = fresh(function.__name__), fresh(function.__name__)
    assert made(*ours) == plain(*theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert np.array_equal(a, b)


@pytest.mark.parametrize("function", [total, saxpy, stencil])
def test_vector_loops_stay_vector_loops(function):
    """As many packed arithmetic instructions as without probes, or more: loops have a copy in strips."""
    made, plain = probed(function, default_target())
    args = fresh(function.__name__)
    made(*args)
    plain(*args)
    packed = re.compile(r"\b(vpaddq|vaddpd|vmulpd|vfmadd\w+pd|addpd|mulpd|paddq|fadd\s+v\d+|fmul\s+v\d+|add\s+v\d+)")
    counts = [len(packed.findall(f.inspect_asm(f.signatures[0]))) for f in (made, plain)]
    if not counts[1]:
        pytest.skip("without probes LLVM makes no vector loop of it for this processor either")
    assert counts[0] >= counts[1], counts
    library = made.overloads[made.signatures[0]].library
    assert library.report.strips > 0


def first_of(text, byte):
    i = 0
    while i < len(text) and text[i] != byte:
        i += 1
    return i


def test_the_copy_of_a_short_loop_begins_at_a_cache_line():
    """At some places the loop would straddle two lines, and take twice as long."""
    made, _ = probed(first_of, default_target())
    x = np.arange(1000.0)
    assert made(x, 700.0) == 700
    assert re.search(r"\.p2align\t6\b.*\n\.LBB", made.inspect_asm(made.signatures[0]))


@pytest.mark.parametrize("function", [total, float_total, saxpy, stencil])
def test_long_loops_look_often(function):
    made, _ = probed(function)
    args = fresh(function.__name__)
    made(*args)
    assert looks(lambda: made(*args)) > 10


def histogram(a):
    d = {}
    for i in range(len(a)):
        if a[i] in d:
            d[a[i]] += 1
        else:
            d[a[i]] = 1
    return len(d), d[a[0]]


def walk(a):
    np.random.seed(4)
    s = 0.0
    for _ in range(len(a)):
        s += np.random.normal() + np.random.choice(a)
    np.random.shuffle(a)
    return s + a[0]


@pytest.mark.parametrize(
    ("function", "small"),
    [(histogram, True), (walk, False), *(pytest.param(*p, marks=LONG) for p in ((histogram, False), (walk, True)))],
)
def test_loops_with_lifetimes_of_slots_in_them_have_a_copy_too(function, small, monkeypatch):
    """Slots that live for a part of a turn: what is passed to numba's own functions by address."""
    if small:
        tiny(monkeypatch)
    made, plain = probed(function)
    assert made(np.arange(20_000) % 7) == plain(np.arange(20_000) % 7)
    report = made.overloads[made.signatures[0]].library.report
    assert (report.missing, report.strips > 0) == ("", True)
    assert looks(lambda: made(np.arange(20_000) % 7)) > 10


def sums_of_arrays(a, b):
    c = a + b * 2.0
    return c[0] + np.sum(a)


def sorted_sums(a, b):
    c = a + b * 2.0
    c.sort()
    return c[0] + np.sum(a)


@pytest.mark.parametrize("work", [sums_of_arrays, pytest.param(sorted_sums, marks=pytest.mark.soak(takes_s=4))])
def test_array_expressions_and_sorting_get_probes_too(work):
    made, plain = probed(work)
    a, b = np.random.default_rng(1).random((2, 100_000))
    assert made(a, b) == plain(a, b)
    assert looks(lambda: made(a, b)) > 50


def test_callees_get_probes_too():
    @numba.njit
    def inner(a):
        s = 0.0
        for x in a:
            s += np.sqrt(x)
        return s

    def outer(a):
        s = 0.0
        for _ in range(20):
            s += inner(a)
        return s

    made, plain = probed(outer)
    a = np.arange(100_000.0)
    assert made(a) == plain(a)
    assert looks(lambda: made(a)) > 100


def test_recursion_looks_at_every_call():
    @numba.njit
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    def start(n):
        return fib(n)

    made, plain = probed(start)
    assert made(15) == plain(15) == 610
    assert looks(lambda: made(15)) > 900


def test_a_batch_function_may_call_itself(monkeypatch):
    monkeypatch.setattr(batch_compile, "default_target", lambda: LOOKS)

    @batch_work.batch
    def walk(left, right, values, i):
        return values[i] + walk(left, right, values, left[i]) + walk(left, right, values, right[i]) if i >= 0 else 0.0

    @batch_work.batch
    @numba.njit
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    @numba.njit
    def calls(n):
        return fib(n) + 1

    n = 255
    left, right = (np.array([k if k < n else -1 for k in range(first, 2 * n + first, 2)]) for first in (1, 2))
    values = np.arange(float(n))
    assert walk(left, right, values, 0) == values.sum()
    assert looks(lambda: walk(left, right, values, 0)) > n
    assert fib(15) == 610
    assert looks(lambda: fib(15)) > 900
    assert calls(15) == 611


def test_prange_is_range():
    def total(a):
        s = 0.0
        for i in numba.prange(len(a)):
            s += a[i]
        return s

    made, plain = probed(total)
    a = np.arange(1_000_000.0)
    assert made(a) == plain(a)
    assert looks(lambda: made(a)) > 100


def strides(marks):
    marks[:] = 0
    found = 0
    for i in range(2, len(marks)):
        if not marks[i]:
            found += 1
            for j in range(i * i, len(marks), i):
                marks[j] = 1
    return found


@pytest.mark.parametrize("small", [False, True])
def test_counters_that_are_hidden_count_on(small, monkeypatch):
    """The strided loop is vectorised with a counter for each lane: more than loop strength reduction is shown."""
    if small:
        tiny(monkeypatch)
    made, plain = probed(strides)
    ours, theirs = np.zeros(20_000, np.uint8), np.zeros(20_000, np.uint8)
    assert made(ours) == plain(theirs) == 2262
    assert np.array_equal(ours, theirs)
    if "+avx512f" not in (config.CPU_FEATURES or get_host_cpu_features()):
        pytest.skip("LLVM makes no vector loop of strided stores for this processor: it takes AVX-512")
    assert "clp.hid" in str(made.overloads[made.signatures[0]].library._final_module)


def test_what_an_early_exit_does_not_use_is_given_back():
    """Loops that could run for long and never do: their looks are those of the turns that they ran."""

    def first_of_many(a, turns):
        s = 0
        for i in range(turns):
            for j in range(len(a)):
                s += 1
                if a[j] > i:
                    break
        return s

    made, plain = probed(first_of_many)
    a = np.full(500, 1 << 40)
    made(a, 100_000)
    assert made(a, 100_000) == plain(a, 100_000) == 100_000
    assert looks(lambda: made(a, 100_000)) < 20_000


def rows(start, x, sums):
    """Around loops of any length; the long ones look for themselves."""
    for i in range(len(start) - 1):
        s = 0.0
        for k in range(start[i], start[i + 1]):
            s += x[k & 1023]
        sums[i] = s


ROWS = {
    "empty": np.zeros(500_000, np.int64),
    "short": np.full(100_000, 9),
    "mixed": np.random.default_rng(5).integers(0, 40, 40_000),
    "long": np.full(6, 300_000),
    "one of many": np.concatenate((np.full(100, 3), [1_500_000], np.full(100, 5))),
}


@pytest.mark.parametrize("small", [False, True])
def test_loops_around_short_ones_look_and_so_do_long_ones_in_them(small, monkeypatch):
    if small:
        tiny(monkeypatch)
    made, plain = probed(rows)
    for what, lengths in ROWS.items():  # in one test, since compiling takes longest
        start = np.concatenate(([0], np.cumsum(lengths)))
        x = np.random.default_rng(7).random(1024)
        ours, theirs = np.zeros(len(start) - 1), np.zeros(len(start) - 1)
        made(start, x, ours)
        plain(start, x, theirs)
        assert np.array_equal(ours, theirs), what
        assert looks(lambda a=(start, x, ours): made(*a)) > 20, what
    report = made.overloads[made.signatures[0]].library.report
    assert len(made.signatures) == 1
    assert report.strips >= 1
    assert (report.countdowns, report.each_turn) == (0, 1)


def row_sums(a, out):
    """As many turns within each time, which is known ahead."""
    for i in range(a.shape[0]):
        s = 0.0
        for j in range(a.shape[1]):
            s += a[i, j]
        out[i] = s


def row_updates(a, out):
    """The same in vectors, and what is left behind them."""
    for i in range(a.shape[0]):
        for j in range(a.shape[1]):
            out[i] += 2 * a[i, j]


def triangle(a, out):
    """Not known: each row is longer than the one before it."""
    for i in range(a.shape[0]):
        for j in range(min(i, a.shape[1])):
            out[i] += a[i, j]


SHAPES = ((60_000, 0), (60_000, 1), (60_000, 3), (20_000, 16), (900, 301), (3, 100_003))


@pytest.mark.parametrize(
    ("function", "small"),
    [
        *((row_sums, False), (row_updates, True), (triangle, False)),
        *(pytest.param(*p, marks=LONG) for p in ((row_sums, True), (row_updates, False), (triangle, True))),
    ],
)
def test_rows_of_one_length_are_reckoned_ahead_and_look_if_they_are_long(function, small, monkeypatch):
    if small:
        tiny(monkeypatch)
    made, plain = probed(function)
    for shape in SHAPES:
        rng = np.random.default_rng(11)
        a = rng.random(shape) if function is row_sums else rng.integers(0, 1000, shape)
        ours, theirs = np.zeros(shape[0], a.dtype), np.zeros(shape[0], a.dtype)
        made(a, ours)
        plain(a, theirs)
        assert np.array_equal(ours, theirs), shape
        if function is not triangle and shape[1] > 1:
            assert looks(lambda a=a, ours=ours: made(a, ours)) > 10, shape
    assert len(made.signatures) == 1
    report = made.overloads[made.signatures[0]].library.report
    assert (report.steady > 0) == (function is not triangle)


def distances(p, q, out):
    """Rows of rows of three."""
    for i in range(p.shape[0]):
        for j in range(q.shape[0]):
            s = 0.0
            for k in range(p.shape[1]):
                s += (p[i, k] - q[j, k]) * (p[i, k] - q[j, k])
            out[i, j] = s


def test_rows_that_end_on_credit_look_two_thirds_as_often_as_one_long_row(monkeypatch):
    """What a row takes beyond the fuel is at most half of what a look gives, however long the rows are."""
    for name in ("FIRST_FUEL", "LEAST_FUEL", "MOST_FUEL"):  # intervals of one length, however long they last
        monkeypatch.setattr(batch_refill, name, 2048)
    made, plain = probed(distances)
    rng = np.random.default_rng(13)
    q = rng.random((60_000, 3))

    def looks_a_turn(turns, rows):
        p, ours, theirs = rng.random((rows, 3)), np.zeros((rows, turns)), np.zeros((rows, turns))
        plain(p, q[:turns], theirs)
        found = looks(lambda: made(p, q[:turns], ours))
        assert np.array_equal(ours, theirs)
        return found / (turns * rows)

    looks_a_turn(2, 2)  # compiles
    whole = looks_a_turn(len(q), 1)
    for turns in (1, 2, 5, 10, 13, 16, 17, 20, 23, 24, 25, 31, 40, 63, 170):
        assert looks_a_turn(turns, 2000) >= 0.66 * whole, turns


def test_a_bound_beyond_all_counting_is_not_taken_off_on_credit():
    """2^62 turns cost more units than 64 bits hold."""

    def until(n, turns):
        s = 0
        for i in range(n):
            for j in range(turns):
                s += i ^ j
                if s & 0xFFFFF == 0xFFFFF:
                    break
        return s

    made, plain = probed(until)
    assert made(3, 1 << 62) == plain(3, 1 << 62)
    assert looks(lambda: made(3, 1 << 62)) > 100


def test_looks_leave_vector_registers_alone_in_the_middle_of_a_sum(monkeypatch):
    """Every few turns look, with half a sum in registers; noting a gap in C may change any of them."""
    tiny(monkeypatch)

    def sums(a, b):
        s, t = 0.0, 1.0
        for i in range(len(a)):
            s += a[i] * t
            t = t * 0.5 + b[i]
        return s, t

    made, plain = probed(sums)
    a, b = np.random.default_rng(9).random((2, 5000))
    assert made(a, b) == plain(a, b)
    assert looks(lambda: made(a, b)) > 300


def test_short_functions_get_nothing():
    def add(a, b):
        return a + b

    made, _ = probed(add)
    assert made(1, 2) == 3
    assert made.overloads[made.signatures[0]].library.report.functions == 0


def test_a_loop_that_ends_by_another_thread_looks_until_then():
    """`while` on a flag: the slow path is called by the thread that waits."""
    from corelane.libos.numba.atomics import load_atomic, store_atomic

    def spin(word, turns):
        n = 0
        while load_atomic(word, 0) == 0:
            n += 1
            if n == turns:
                store_atomic(word, 0, np.uint64(1))
        return n

    made, _ = probed(spin)
    assert looks(lambda: made(np.zeros(1, np.uint64), 1_000_000)) > 100


def test_text_of_a_module_is_written_as_it_was_read():
    class Same(ProbedLibrary):
        def _replace(self, text, report):
            super()._replace(str(parse(str(self._final_module))), report)

    made = numba.njit(pipeline_class=probed_compiler(default_target(), Same))(float_total)
    a = np.arange(1000.0)
    assert made(a) == a.sum()


@pytest.mark.parametrize("name", ["a", "a.1", "$phi30.1", "1a", "a b", "größe", 'a"b'])
def test_values_have_the_names_that_llvm_prints(name):
    """Those that it quotes as well: a loop's copy is handed what it uses by its name."""
    shown = "".join(rf"\{b:02X}" for b in name.encode())
    text = str(llvm.parse_assembly(f'define i64 @f(i64 %"{shown}") {{\n  ret i64 %"{shown}"\n}}\n'))
    (found,) = types_of(text)["f"]
    assert f"ret i64 {found}\n" in text


def either_scaled(a, n):
    """What a conditional expression chose is used in a loop behind it, under a name with a `$`."""
    scale = np.float64(n) if n > 3 else a[0]
    total = 0.0
    for i in range(len(a)):
        for k in range(n):
            total += a[i] * scale + k
    return total


def test_what_a_conditional_expression_chose_reaches_the_loop_behind_it():
    made, plain = probed(either_scaled)
    a = np.random.default_rng(1).random(50_000)
    for n in (2, 5):
        assert made(a, n) == plain(a, n)
    assert made.overloads[made.signatures[0]].library.report.missing == ""
