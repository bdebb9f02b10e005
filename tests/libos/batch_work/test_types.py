"""What a job gives is what the function gives that is called: kinds of arguments and results, each both ways."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numba
import numpy as np
import pytest

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.libos.numba.atomics import load_atomic
from corelane.runtime.errors import CorelaneError


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kind="batch", address="10.0.0.1/24") as made:
        yield made.start()


@libos.batch
def find(a, x):
    for i in range(len(a)):
        if a[i] == x:
            return i
    return None


@libos.batch
def from_where(a, x):
    for i in range(len(a)):
        if a[i] == x:
            return a[i:].copy()
    return None


def test_a_loop_that_returns_what_it_found_may_end_without(runtime):
    a = np.arange(10_000)
    for x in (0, 7_000, -1):
        assert runtime.batch(find, a, x).result(60) == find(a, x) == find.function(a, x)


def test_an_array_or_none_comes_back(runtime):
    a = np.arange(100)
    for _ in range(3):  # its memory is counted
        assert np.array_equal(runtime.batch(from_where, a, 90).result(60), a[90:])
        assert runtime.batch(from_where, a, 100).result(60) is None


@numba.njit(parallel=True)
def add_up(a):
    s = 0.0
    for i in numba.prange(len(a)):
        s += a[i]
    return s


def test_a_parallel_function_is_refused_where_it_is_called(runtime):
    @libos.batch
    def through_another(a):
        return add_up(a)

    for _ in range(2):  # it was compiled by then
        with pytest.raises(CorelaneError, match=r"compile batch function through_another: .*parallel=True.*one job"):
            runtime.batch(through_another, np.ones(10))


@pytest.mark.parametrize("draw", [np.random.random, random.random])
def test_generators_that_are_the_threads_are_refused(runtime, draw):
    @numba.njit
    def one():
        return draw()

    @libos.batch
    def noise(n):
        s = 0.0
        for _ in range(n):
            s += one()
        return s

    with pytest.raises(CorelaneError, match=r"compile batch function noise: .* draws from .*numpy.random.Generator"):
        runtime.batch(noise, 10)


@numba.njit
def drawn_with_a_constant(n, m):
    if n == 0:
        return 0.0
    if m == 1:  # known where it is a constant: only what is compiled for one draws
        return drawn_once(n)
    return drawn_with_a_constant(n - 1, 1)


@numba.njit
def drawn_once(n):
    return n + np.random.random()


@libos.batch
def of_a_pointer(function, x):
    return function(x)


@libos.batch
def of_itself(n, m):
    if n == 0:
        return 0.0
    return of_itself(n - 1, 1.0) + (np.random.random() if isinstance(m, float) else 0.0)


@libos.batch
def of_another(n):
    return drawn_with_a_constant(n, n)


@pytest.fixture(scope="module")
def drawn():
    """A function by its address; compiled when a test wants it."""

    def drawn(x):
        return x + np.random.random()

    return numba.cfunc("float64(float64)")(drawn)


@pytest.fixture(scope="module")
def of_a_global(drawn):
    @libos.batch
    def of_a_global(x):
        return drawn(x)

    return of_a_global


DRAWS = r"np\.random, whose state is the thread's"


@pytest.mark.parametrize(("job", "arguments"), [(of_itself, (3, 1)), (of_another, (3,))])
def test_what_is_compiled_apart_is_looked_at_too(runtime, job, arguments):
    for _ in range(2):
        with pytest.raises(CorelaneError, match=DRAWS):
            runtime.batch(job, *arguments)


def test_what_is_called_by_its_address_is_looked_at_too(runtime, drawn, of_a_global):
    for job, arguments in ((of_a_pointer, (drawn, 1.0)), (of_a_global, (1.0,))) * 2:
        with pytest.raises(CorelaneError, match=DRAWS):
            runtime.batch(job, *arguments)


@pytest.mark.filterwarnings("ignore:.*First-class function type")
def test_a_pointer_is_looked_at_each_time(runtime, drawn):
    """The machine code is the same for all functions of one type."""

    @numba.cfunc("float64(float64)")
    def twice(x):
        return 2 * x

    assert runtime.batch(of_a_pointer, twice, 4.0).result(60) == 8
    with pytest.raises(CorelaneError, match=r"np\.random"):
        runtime.batch(of_a_pointer, drawn, 4.0)
    assert runtime.batch(of_a_pointer, twice, 3.0).result(60) == 6


@libos.batch
def literal(n):
    return numba.literally(n) + 1


@libos.batch
def of_a_literal():
    return literal(3)


def test_a_literal_argument_is_refused_and_a_constant_taken(runtime):
    with pytest.raises(CorelaneError, match=r"compile batch function literal: .*numba\.literally.*with the constant"):
        runtime.batch(literal, 3)
    assert runtime.batch(of_a_literal).result(60) == literal(3) == 4


@libos.batch
def walk(rng, steps, half_way, me):
    s = 0.0
    for _ in range(2):
        for _ in range(steps):
            s += rng.random() - 0.5 + rng.standard_normal()
        half_way[me] = 1
        for other in range(len(half_way)):
            while load_atomic(half_way, other) == 0:
                pass
    return s


def test_numbers_of_a_generator_are_the_same_beside_other_jobs(runtime, caplog):
    """Each job waits amid its draws for the others, on the one kthread: they take turns."""
    half_way = np.zeros(3, np.uint64)
    jobs = [runtime.batch(walk, np.random.default_rng(seed), 1000, half_way, seed) for seed in range(3)]
    done = np.ones(3, np.uint64)
    plain = numba.njit(walk.function)
    for seed, job in enumerate(jobs):
        alone = plain(np.random.default_rng(seed), 1000, done, seed)
        assert job.result(60) == alone
    assert not caplog.records


def bump(items):
    for i in range(len(items)):
        items[i] += 1
    return len(items)


def test_lists_of_python_are_refused_and_typed_ones_taken(runtime):
    job = libos.batch(bump)
    for argument in ([1, 2], ([1, 2], [3, 4])):
        with pytest.raises(CorelaneError, match=r"run batch function bump: .*numba\.typed\.List"):
            runtime.batch(job, argument)
    with pytest.raises(CorelaneError, match=r"functions that numba\.njit has wrapped"):
        runtime.batch(job, bump)
    items = numba.typed.List([1, 2])
    assert runtime.batch(job, items).result(60) == 2
    assert list(items) == [2, 3]


def test_a_result_that_numba_cannot_return_is_refused_with_the_functions_name(runtime):
    @libos.batch
    def items_of(a):
        return iter(a)

    with pytest.raises(CorelaneError, match=r"compile batch function items_of: .*mend it"):
        runtime.batch(items_of, np.ones(3))


seen = 0


@libos.batch
def remember(n):
    global seen
    seen = n
    return n


def test_a_global_that_is_set_is_refused(runtime):
    with pytest.raises(CorelaneError, match=r"compile batch function remember: .*STORE_GLOBAL"):
        runtime.batch(remember, 1)
