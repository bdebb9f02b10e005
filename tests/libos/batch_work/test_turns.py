"""Which loops look at each turn, which run in strips of turns, and which leave it to the loops within them."""

from __future__ import annotations

import numba
import numpy as np
import pytest
from probing import LOOKS, looks, probed, tiny

from corelane.libos.batch_work import refill as batch_refill
from corelane.libos.batch_work.compile import ProbedLibrary, probed_compiler
from corelane.libos.batch_work.ir import dominators, loops, parse


def chase(following, i, n):
    """Each turn loads where the next one goes."""
    turns = 0
    while i != n:
        i = following[i]
        turns += 1
    return turns


def bisect(a, i, n):
    """What is loaded says where half of the rest is."""
    turns = 0
    while i < n:
        middle = (i + n) >> 1
        if a[middle] < 70_000:
            i = middle + 1
        else:
            n = middle
        turns += 1
    return turns


def collatz(a, i, n):
    """No loads at all."""
    turns, x = 0, 27
    while turns < 50 or x != n:
        x = x // 2 if x % 2 == 0 else 3 * x + 1
        turns += x & 1
        if x == 1:
            x = 27
    return turns


def until(a, i, n):
    """Loads one after the other."""
    while a[i] != n:
        i += 1
    return i


def merge(a, i, n):
    """Two that go on one after the other."""
    j, s, half = n // 2, 0, n // 2
    while i < half and j < n:
        if a[i] + 50_000 <= a[j]:
            s += a[i] ^ j
            i += 1
        else:
            s += a[j] ^ i
            j += 1
    return s


# For the arguments of the test: one in four turns, where these are short.
LOOKS_AT_LEAST = {chase: 25_000, bisect: 4, collatz: 50, until: 24_999, merge: 24_999}


@pytest.mark.parametrize("small", [False, True])
@pytest.mark.parametrize("function", [chase, bisect, collatz, until, merge])
def test_loops_that_do_not_count_look_each_turn(function, small, monkeypatch):
    if small:
        tiny(monkeypatch)
    made, plain = probed(function)
    a = np.arange(1, 100_001)
    args = (a, 0, 91) if function is collatz else (a, 0, 100_000)
    assert made(*args) == plain(*args)
    report = made.overloads[made.signatures[0]].library.report
    assert (report.strips, report.countdowns, report.each_turn) == (0, 0, 1)
    assert looks(lambda: made(*args)) >= LOOKS_AT_LEAST[function]


def summed(following, i, n, most):
    """Floats in order, with two ways out of a turn."""
    s = 0.0
    while i != n:
        i = following[i]
        s = s * 0.999 + i
        if s > most:
            return -s
    return s


@pytest.mark.parametrize("small", [False, True])
def test_short_ones_look_once_in_four_turns_wherever_they_end(small, monkeypatch):
    if small:
        tiny(monkeypatch)
    made, plain = probed(summed)
    following = np.arange(1, 10_001)
    for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 4001, 10_000):
        assert made(following, 0, n, 1e9) == plain(following, 0, n, 1e9)
        assert -(-n // 4) <= looks(lambda n=n: made(following, 0, n, 1e9)) <= n // 4 + 3  # one is the function's
    limits = [plain(following, 0, n, 1e9) for n in range(4000, 4009)]
    for at, most in enumerate(limits, 4000):  # it ends one turn later
        assert made(following, 0, 10_000, most) == plain(following, 0, 10_000, most) < 0
        assert at // 4 <= looks(lambda most=most: made(following, 0, 10_000, most)) <= at // 4 + 3


def test_long_ones_are_left_as_they_are():
    def long(following, i, n):
        s = 0.0
        while i != n:
            i = following[i]
            s = (s / (1 + i) + i) / (s * s + 1) + np.sqrt(s + i) / (3 + s)
        return s

    made, plain = probed(long)
    following = np.arange(1, 1001)
    assert made(following, 0, 1000) == plain(following, 0, 1000)
    assert looks(lambda: made(following, 0, 1000)) >= 999


def test_a_loop_whose_turns_all_come_by_a_look_has_none_of_its_own():
    def walks(following, turns):
        s = 0
        for i in range(turns):
            while True:
                i = following[i]
                s += 1
                if i > 900:
                    break
        return s

    def perhaps(following, turns):
        s = 0
        for i in range(turns):
            while i < 900:
                i = following[i]
                s += 1
        return s

    following = np.arange(1, 1001)
    for function, own, least in ((walks, 0, 101_000), (perhaps, 1, 101_000)):
        made, plain = probed(function)
        assert made(following, 900) == plain(following, 900)
        report = made.overloads[made.signatures[0]].library.report
        assert report.strips + report.countdowns == own  # which one depends on how often LLVM unrolls on this processor
        assert looks(lambda made=made: made(following, 900)) >= least


def test_searches_that_often_stop_at_the_loops_within_look_often(monkeypatch):
    """Short loops within begin on credit, but only while fuel is left."""
    for name in ("FIRST_FUEL", "LEAST_FUEL", "MOST_FUEL"):  # intervals of one length, however long they last
        monkeypatch.setattr(batch_refill, name, 4096)

    def count(text, needle):
        n, found = len(needle), 0
        for i in range(len(text) - n + 1):
            if text[i] == needle[0]:
                for j in range(1, n):
                    if text[i + j] != needle[j]:
                        break
                else:
                    found += 1
        return found

    made, plain = probed(count)
    text, needle = np.zeros(100_000, np.uint8), np.zeros(20, np.uint8)
    assert made(text, needle) == plain(text, needle) == 99_981
    assert looks(lambda: made(text, needle)) > 1_900_000 * 4 / 4096
    assert made(text, np.zeros(300, np.uint8)) == plain(text, np.zeros(300, np.uint8))


def smoothed(x, y):
    for i in range(1, x.shape[0] - 1):
        for j in range(1, x.shape[1] - 1):
            y[i, j] = x[i, j] + 0.25 * (x[i - 1, j] + x[i + 1, j] + x[i, j - 1] + x[i, j + 1])


@pytest.mark.parametrize("small", [False, True])
def test_unrolled_loops_whose_exit_test_is_on_a_turn_in_the_middle_count(small, monkeypatch):
    """What vectors leave of a row is unrolled like that: rows of all lengths, and long ones whose memory overlaps."""
    if small:
        tiny(monkeypatch)
    made, plain = probed(smoothed)
    rng = np.random.default_rng(17)
    for width in (*range(1, 70), 700):
        x = rng.random((40, width))
        ours, theirs = np.zeros_like(x), np.zeros_like(x)
        made(x, ours)
        plain(x, theirs)
        assert np.array_equal(ours, theirs), width
    report = made.overloads[made.signatures[0]].library.report
    assert (report.countdowns, report.each_turn) == (0, 1)
    ours = rng.random((4, 100_003))
    theirs = ours.copy()
    plain(theirs, theirs)
    assert looks(lambda: made(ours, ours)) > 10
    assert np.array_equal(ours, theirs)


def test_rows_of_one_length_look_each_where_a_row_is_long_beside_a_look():
    """Shorter ones are counted, many to a look."""

    def row_sums(a, out):
        for i in range(a.shape[0]):
            s = 0.0
            for j in range(a.shape[1]):
                s += a[i, j]
            out[i] = s

    made, plain = probed(row_sums)
    for rows, length, least, most in ((900, 400, 225, 2000), (60_000, 8, 10, 20_000)):  # LLVM may join up to 4 rows
        a = np.random.default_rng(19).random((rows, length))
        ours, theirs = np.zeros((2, rows))
        plain(a, theirs)
        made(a, ours)
        assert least <= looks(lambda a=a, ours=ours: made(a, ours)) < most
        assert np.array_equal(ours, theirs)


def blocks_times(a, b, c):
    """Rows of a block, each added to by all rows of another: three loops that run in strips, or whole."""
    for i in range(a.shape[0]):
        for k in range(a.shape[1]):
            x = a[i, k]
            for j in range(b.shape[1]):
                c[i, j] += x * b[k, j]


def headers(module):
    """Of all loops in a module's first function."""
    function = next(parse(str(module)).functions())
    return [loop.header for loop in loops(function, dominators(function))[0]]


def test_a_loop_in_strips_around_others_is_one_loop_to_the_code_generator():
    """The code generator simplifies loops first. Where it tells strips from turns it makes two loops of one, and has
    addresses begin anew in each strip, at the cost of registers in each turn."""
    found = []

    class Counted(ProbedLibrary):
        def _replace(self, text, report):
            super()._replace(text, report)
            before = headers(self._final_module)
            self._pass_loops()
            found.append((before, headers(self._final_module), report))

    made = numba.njit(pipeline_class=probed_compiler(LOOKS, Counted))(blocks_times)
    a, b = np.random.default_rng(20).random((2, 40, 40))
    ours, theirs = np.zeros((2, 40, 40))
    made(a, b, ours)
    numba.njit(blocks_times)(a, b, theirs)
    assert np.array_equal(ours, theirs)
    ((before, after, report),) = found
    assert report.strips
    assert len(before) > 3  # those of the source: one at least has strips, and one may be unrolled
    assert len(after) == len(before)
