"""Batch functions at work on a runtime: arguments, results, exceptions, several at a time, and a runtime that stops."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Iterator

import numba
import numpy as np
import pytest
from cltest import open_descriptors, wait_until

from corelane import libos
from corelane.drivers.nic.memory import memory_link
from corelane.libos import Runtime
from corelane.libos.batch_work import compile as batch_compile
from corelane.libos.batch_work import work as batch_work
from corelane.libos.handlers.compile import compile_handler
from corelane.libos.numba.atomics import load_atomic
from corelane.runtime.errors import CorelaneError


@pytest.fixture
def runtime() -> Iterator[Runtime]:
    nic, end = memory_link((2, 1))
    with nic, end, Runtime(nic=nic, kthreads=2, address="10.0.0.1/24") as made:
        yield made.start()


UNENDING = """
from corelane import libos
from corelane.drivers.nic.memory import memory_link

@libos.batch(compiled=False)
def forever():
    while True:
        pass

nic, end = memory_link((1, 1))
job = libos.Runtime(nic=nic, address="10.0.0.1/24").batch(forever)
print(job)
"""


@libos.batch
def dot(a, b, scale=1.0):
    s = 0.0
    for i in range(len(a)):
        s += a[i] * b[i]
    return s * scale


@libos.batch
def squares(n):
    out = np.empty(n)
    for i in range(n):
        out[i] = i * i
    return out


@libos.batch
def refuse(a, at):
    if at >= len(a):
        raise ValueError("no such element")
    return a[at]


@libos.batch
def sum_of_dots(a, n):
    s = 0.0
    for _ in range(n):
        s += dot(a, a)
    return s


@libos.batch
def release(word):
    word[0] = 1
    return 0


@libos.batch
def wait_for(word):
    n = 0
    while load_atomic(word, 0) == 0:
        n += 1
    return n


def test_it_is_an_ordinary_function_outside_a_runtime():
    a = np.arange(10.0)
    assert dot(a, a) == dot.function(a, a) == 285.0
    assert dot(a, b=a, scale=2.0) == 570.0


def test_a_job_takes_scalars_and_arrays_and_gives_its_result(runtime):
    a = np.arange(100_000.0)
    job = runtime.batch(dot, a, a, scale=0.5)
    assert job.result(30) == dot(a, a, 0.5)
    assert job.done()
    assert job.result() == dot(a, a, 0.5), "may be asked again"


def test_an_array_that_was_made_in_the_job_comes_back(runtime):
    out = runtime.batch(squares, 1000).result(30)
    assert np.array_equal(out, np.arange(1000.0) ** 2)
    again = [runtime.batch(squares, n) for n in range(1, 20)]
    assert [len(job.result(30)) for job in again] == list(range(1, 20))
    assert np.array_equal(out, np.arange(1000.0) ** 2), "its memory is its own"


def test_arguments_live_as_long_as_the_job(runtime):
    job = runtime.batch(dot, np.ones(1 << 20), np.ones(1 << 20))
    assert job.result(30) == 1 << 20


def test_exceptions_come_back(runtime):
    job = runtime.batch(refuse, np.zeros(3), 7)
    with pytest.raises(ValueError, match="no such element"):
        job.result(30)
    with pytest.raises(ValueError, match="no such element"):
        job.result(30)
    assert runtime.batch(refuse, np.ones(3), 1).result(30) == 1.0


def test_batch_functions_call_batch_functions(runtime):
    a = np.ones(1000)
    assert runtime.batch(sum_of_dots, a, 50).result(30) == 50_000.0
    assert sum_of_dots.report.functions >= 1


def test_jobs_run_side_by_side(runtime):
    """One of two kthreads runs a job that waits for the other's."""
    word = np.zeros(1, np.uint64)

    waiting = runtime.batch(wait_for, word)
    assert not waiting.done()
    with pytest.raises(TimeoutError, match="wait_for"):
        waiting.result(0.0)
    assert runtime.batch(release, word).result(30) == 0
    assert waiting.result(30) >= 0


def test_jobs_of_a_batch_runtime_share_one_kthread():
    """Without being told: the job that waits would keep the only kthread from the one that it waits for."""
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kind="batch", address="10.0.0.1/24") as made:
        made.start()
        word = np.zeros(1, np.uint64)
        waiting = made.batch(wait_for, word)
        assert made.batch(release, word).result(30) == 0
        assert waiting.result(30) > 0


def test_plain_python_runs_on_the_kthreads_own_stack(runtime):
    def work(depth, threads):
        threads.append(threading.get_native_id())
        return depth if depth == 0 else work(depth - 1, threads)

    threads: list[int] = []
    job = runtime.batch(libos.batch(compiled=False)(work), 200, threads)
    assert job.result(30) == 0
    assert len(set(threads)) == 1
    assert threads[0] != threading.get_native_id()


class Counter:
    """Its methods are batch work: plain Python may use the object, numba may not."""

    def __init__(self):
        self.total = 0

    @libos.batch(compiled=False)
    def add(self, n):
        self.total += n
        return self.total

    @libos.batch
    def compiled(self, n):
        return n


def test_methods_get_their_object(runtime):
    counter = Counter()
    assert counter.add(2) == 2
    assert runtime.batch(counter.add, 3).result(30) == 5
    assert Counter.add(counter, 1) == counter.total == 6
    with pytest.raises(CorelaneError, match="Counter"):
        runtime.batch(counter.compiled, 3)


def test_batch_functions_are_pickled_by_name():
    assert pickle.loads(pickle.dumps(dot)) is dot
    assert pickle.loads(pickle.dumps(Counter.add)) is Counter.add


@libos.batch
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)


def test_a_function_that_calls_itself_runs(runtime):
    assert runtime.batch(fib, 15).result(30) == 610


def test_plain_python_fails_as_python_does(runtime):
    @libos.batch(compiled=False)
    def work():
        return {}["missing"]

    with pytest.raises(KeyError, match="missing"):
        runtime.batch(work).result(30)


def test_a_runtime_that_was_stopped_says_so():
    word = np.zeros(1, np.uint64)
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kthreads=1, address="10.0.0.1/24") as made:
        before_start = made.batch(wait_for, word)
        assert not before_start.done()
    with pytest.raises(CorelaneError, match="stopped before it ended"):
        before_start.result(30)


@pytest.mark.parametrize(
    ("args", "says"),
    [
        ((), "missing"),
        ((1, 2, 3, 4), "too many"),
        (("text", "more"), "compile batch function dot"),
        ((object(), 1), "numbers"),
    ],
)
def test_what_does_not_fit_is_refused(runtime, args, says):
    with pytest.raises(CorelaneError, match=says):
        runtime.batch(dot, *args)


def test_any_number_of_arguments_comes_as_a_tuple(runtime):
    @libos.batch
    def total(a, *more):
        return a[0] + sum(more)

    @libos.batch
    def total_of(a, more):
        return a[0] + sum(more)

    a = np.ones(3)
    assert total(a, 1, 2, 3) == 7
    with pytest.raises(CorelaneError, match=r"run batch function total: .*let it take a tuple"):
        runtime.batch(total, a, 1, 2, 3)
    with pytest.raises(CorelaneError, match=r"run batch function .*let it take a tuple"):
        runtime.batch(lambda **more: 0)
    with pytest.raises(CorelaneError, match=r"start a job: None cannot be called"):
        runtime.batch(None)
    assert runtime.batch(total_of, a, (1, 2, 3)).result(30) == 7
    assert runtime.batch(libos.batch(lambda *all: sum(all), compiled=False), 1, 2, 3).result(30) == 6


def test_a_refusal_by_numba_is_plain_text(runtime):
    @libos.batch
    def no_such_attribute(x):
        return x.nothing

    with pytest.raises(CorelaneError, match="Unknown attribute 'nothing' of type int64") as refused:
        runtime.batch(no_such_attribute, 1)
    assert "\x1b" not in str(refused.value)


def test_what_cannot_be_batch_work_is_refused():
    import numba

    def generator():
        yield 1

    async def stream():
        yield 1

    for refused in (generator, stream):
        for compiled in (True, False):
            with pytest.raises(CorelaneError, match="generator"):
                libos.batch(refused, compiled=compiled)
    with pytest.raises(CorelaneError, match="cannot be called"):
        libos.batch(3)
    with pytest.raises(CorelaneError, match="not written in Python"):
        libos.batch(len)
    with pytest.raises(CorelaneError, match="parallel"):
        libos.batch(numba.njit(parallel=True)(lambda n: n))
    with pytest.raises(CorelaneError, match="error_model"):
        libos.batch(error_model="java")
    with pytest.raises(CorelaneError, match="'debug'"):
        libos.batch(numba.njit(debug=True)(lambda n: n))
    with pytest.raises(CorelaneError, match="'forceobj'"):
        libos.batch(forceobj=True)
    with pytest.raises(CorelaneError, match="fastmath"):
        libos.batch(compiled=False, fastmath=True)


def inverses(a):
    s = 0.0
    for x in a:
        s += 1 / x
    return s


def third(a):
    return a[3]


@pytest.mark.parametrize("wrapped", [True, False])
def test_options_of_njit_hold(wrapped):
    def made(function, **options):
        return libos.batch(numba.njit(**options)(function)) if wrapped else libos.batch(**options)(function)

    default = made(inverses)
    with pytest.raises(ZeroDivisionError):
        default(np.zeros(2))
    assert made(inverses, error_model="numpy")(np.zeros(2)) == np.inf
    with pytest.raises(IndexError):
        made(third, boundscheck=True)(np.zeros(2))
    a = np.random.default_rng(1).random(10_001) + 1.0
    fast = made(inverses, error_model="numpy", fastmath=True)
    assert fast(a) == numba.njit(error_model="numpy", fastmath=True)(inverses)(a)
    assert fast(a) != default(a)  # added up in another order
    narrow = made(inverses, locals={"s": numba.float32})
    assert narrow(a) == numba.njit(locals={"s": numba.float32})(inverses)(a) != default(a)


def test_an_option_that_is_given_goes_before_that_of_njit():
    assert libos.batch(error_model="numpy")(numba.njit(error_model="python")(inverses))(np.zeros(2)) == np.inf


def no_room(text, target):
    raise RuntimeError("no room for a probe")


def test_code_that_cannot_have_probes_runs_without_and_the_log_says_so(runtime, monkeypatch, caplog):
    monkeypatch.setattr(batch_compile, "add_probes", no_room)
    job = runtime.batch(libos.batch(inverses), np.ones(5))
    assert job.result(60) == 5.0
    compile_handler(handle, cache=False)
    said = [record.getMessage() for record in caplog.records if "no probes" in record.getMessage()]
    assert len(said) == 2
    assert "batch function inverses has no probes" in said[0]
    assert "no room for a probe" in said[0]
    assert "handler handle has no probes" in said[1]


def handle(request, reply):
    for i in range(len(request)):
        reply[i] = request[i]
    return len(request)


def test_other_machines_get_plain_code_and_one_warning(monkeypatch, caplog):
    """As if this were one: nothing that is written for x86-64 gets into the code."""
    monkeypatch.setattr(batch_compile, "HAS_PROBES", False)
    batch_compile._warn_of_machine.cache_clear()
    for _ in range(2):
        made = libos.batch(inverses)
        made.compile((numba.float64[::1],))
        assert made(np.ones(3)) == 3.0
        assert "clp." not in str(made._probed.overloads[(numba.float64[::1],)].library._final_module)
    (said,) = (record.getMessage() for record in caplog.records if "x86-64" in record.getMessage())
    assert "no compiled function has probes" in said


def test_the_registered_range_holds_the_code():
    dot(np.ones(3), np.ones(3))
    (signature,) = [s for s in dot._probed.overloads if len(s) == 3][:1]
    made = dot._probed.overloads[signature]
    begin, end = made.library.code_range(made.fndesc.llvm_func_name)
    address = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
    assert begin <= address < end
    assert end - begin < 1 << 20


def test_jobs_that_a_close_cut_off_are_let_go(runtime):
    """The next start lets go of them, here that of another runtime; a handle still says what became of its job."""
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kthreads=1, address="10.0.0.1/24") as made:
        cut = [made.batch(squares, 10) for _ in range(5)]  # never started
        runtime.batch(squares, 3).result(30)
        assert set(batch_work._alive).issuperset(cut)
    descriptors = open_descriptors()
    runtime.batch(squares, 3).result(30)
    assert set(batch_work._alive).isdisjoint(cut)
    with pytest.raises(CorelaneError, match="stopped before it ended"):
        cut[0].result(30)
    cut.clear()
    assert open_descriptors() == descriptors - 5


def test_jobs_that_a_stop_cut_off_are_let_go(runtime):
    word = np.zeros(1, np.uint64)
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kthreads=1, address="10.0.0.1/24") as made:
        cut = [made.batch(wait_for, word) for _ in range(5)]  # a stop waits for the first, which does not let go
        made.start()
        timer = threading.Timer(0.1, lambda: word.fill(1))
        timer.start()
        made.stop(0.0)
        timer.join()
        runtime.batch(squares, 3).result(30)
        assert set(batch_work._alive).isdisjoint(cut)


def test_jobs_of_a_runtime_that_was_stopped_before_its_start_are_kept_for_it(runtime):
    word = np.zeros(1, np.uint64)
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kthreads=1, address="10.0.0.1/24") as made:
        job = made.batch(release, word)
        made.stop()
        runtime.batch(squares, 3).result(30)
        assert job in batch_work._alive
        made.start()
        wait_until(lambda: word[0] == 1, 60)


def test_a_program_may_end_before_its_job(tmp_path):
    (tmp_path / "program.py").write_text(UNENDING)
    run = subprocess.run([sys.executable, "program.py"], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert (run.returncode, run.stdout, run.stderr) == (0, "<batch job forever, not done>\n", "")


def test_a_job_that_ended_is_let_go(runtime):
    job = runtime.batch(squares, 10)
    wait_until(job.done, 60)
    assert repr(job) == "<batch job squares, done>"
    assert job not in batch_work._alive
    assert list(job.result()) == [float(i * i) for i in range(10)]


def test_jobs_that_nobody_asks_for_keep_nothing(runtime):
    """Started and forgotten: what has ended goes with the next start, its descriptor too."""
    runtime.batch(squares, 10).result(30)
    others = set(batch_work._alive)  # of tests whose runtime ended first
    descriptors = open_descriptors()
    words = [np.zeros(1, np.uint64) for _ in range(50)]
    for word in words:
        runtime.batch(release, word)
        wait_until(lambda word=word: word[0] == 1, 60)
    wait_until(lambda: all(job._wait(0.0) for job in set(batch_work._alive) - others), 60)
    runtime.batch(squares, 10).result(30)
    assert set(batch_work._alive) <= others
    assert open_descriptors() <= descriptors


class Steps:
    """Counts the lines that libos/batch_work/work.py runs while it is entered, each turn of a loop anew."""

    def __enter__(self):
        self.count = 0
        sys.settrace(self._call)
        return self

    def __exit__(self, *exc):
        sys.settrace(None)

    def _call(self, frame, event, arg):
        return self._step if frame.f_code.co_filename == batch_work.__file__ else None

    def _step(self, frame, event, arg):
        self.count += event == "line"
        return self._step


def test_a_start_costs_the_same_however_many_jobs_are_at_work(runtime):
    nic, end = memory_link((1, 1))
    with nic, end, Runtime(nic=nic, kthreads=1, address="10.0.0.1/24") as made:
        jobs, steps = [made.batch(squares, 10)], []  # none begins: the runtime was not started
        for alive in (1, 201):
            jobs += [made.batch(squares, 10) for _ in range(alive - len(jobs))]
            with Steps() as taken:
                jobs.append(made.batch(squares, 10))
            steps.append(taken.count)
        assert set(jobs) <= set(batch_work._alive)
    assert 10 < steps[0] == steps[1]
    runtime.batch(squares, 10).result(30)  # lets go of them


def test_a_child_of_fork_has_none_of_its_parents_jobs(runtime):
    """Its kthreads are not there to end them; and what it starts is not to be seen by the parent's look at its own."""
    word = np.zeros(1, np.uint64)
    job = runtime.batch(wait_for, word)
    child = os.fork()
    if child == 0:
        os._exit(0 if not set(batch_work._alive) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert job in batch_work._alive
    word[0] = 1
    wait_until(job.done, 60)


@numba.njit
def total_of(n):
    s = 0
    for i in range(n):
        s += i * i % 7
    return s


def test_calls_through_pointers_are_warned_of_once(caplog):
    @numba.cfunc("int64(int64)")
    def twice(x):
        return 2 * x

    @libos.batch
    def through(function, n):
        return function(n)

    @libos.batch
    def by_name(n):
        return total_of(n)

    for kind in (numba.int64, numba.int32):
        through.compile((numba.typeof(twice), kind))
    by_name.compile((numba.int64,))
    assert through.report.unprobed_calls > 0
    assert by_name.report.unprobed_calls == 0
    (said,) = (record.getMessage() for record in caplog.records if "pointers" in record.getMessage())
    assert "batch function through calls functions through pointers" in said
