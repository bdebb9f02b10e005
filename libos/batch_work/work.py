"""Batch work: functions that run for long on what cores are left over, and cede them within microseconds.

    @libos.batch
    def work(a, b):            # compiled by numba, with probes in its loops (probes.py)
        ...

    with libos.Runtime("/run/corelane.sock", kind="batch") as runtime:
        runtime.start()
        job = runtime.batch(work, a, b)     # on a uthread
        print(job.result())

docs/probes.md is the page for users. Importing this module does not import numba; calling a compiled function does.
"""

from __future__ import annotations

import functools
import inspect
import logging
import os
import select
import threading
import time
import types
from collections.abc import Callable, Iterator
from typing import Any

from ...runtime import codes
from ...runtime.errors import CorelaneError, plain_text
from .._native import ffi, lib
from .thread_pools import keep_to_one

_log = logging.getLogger("corelane.libos")


class Batch:
    """A function as batch work, made by `batch`. Calling it calls the function here and now, with probes that find
    nothing to do.

    function: the Python function. options: for numba. report: of the last compilation, which loops got which probes;
    None before.
    """

    __name__: str
    __qualname__: str

    def __init__(self, function: Callable[..., Any], *, compiled: bool, options: dict[str, Any]) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.compiled = compiled
        self.options = options
        self.report: Any = None
        self._ranges: dict[Any, tuple[int, int]] = {}
        self._warned = False
        self._lock = threading.Lock()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return (self._probed if self.compiled else self.function)(*args, **kwargs)

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        """As of a function: found through an object, it gets that as its first argument."""
        return self if instance is None else types.MethodType(self, instance)

    def __reduce__(self) -> str:
        """Pickled by its name, as functions are."""
        return self.__qualname__

    @functools.cached_property
    def _probed(self) -> Any:
        """The dispatcher whose code has probes."""
        import numba

        from .compile import default_target, probed_compiler

        pipeline = probed_compiler(default_target())
        return numba.njit(nogil=True, pipeline_class=pipeline, **self.options)(self.function)

    @property
    def _numba_type_(self) -> Any:
        """What numba takes this object for in compiled functions: an ordinary function.

        In its own body it is the one that is being compiled: numba ends a recursion by meeting the same dispatcher
        again. Elsewhere it is plain, and gets its probes when it becomes a part of the caller's code.
        """
        from numba.core.types import Dispatcher

        probed = self.__dict__.get("_probed")  # not made for this question
        return Dispatcher(probed if probed is not None and probed.is_compiling else self._plain)

    @functools.cached_property
    def _plain(self) -> Any:
        import numba

        return numba.njit(nogil=True, **self.options)(self.function)

    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """Arguments in order, defaults filled in. Raises CorelaneError if they do not fit."""
        signature = inspect.signature(self.function)
        try:
            bound = signature.bind(*args, **kwargs)
        except TypeError as error:
            raise CorelaneError(f"run batch function {self.__name__}", str(error)) from error
        kinds = [parameter.kind for parameter in signature.parameters.values()]
        if self.compiled and {inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD} & set(kinds):
            raise CorelaneError(
                f"run batch function {self.__name__}", "it takes any number of arguments", "let it take a tuple"
            )
        bound.apply_defaults()
        if bound.kwargs:
            raise CorelaneError(
                f"run batch function {self.__name__}", "it has keyword-only parameters", "make them ordinary"
            )
        return bound.args

    def compile(self, argtypes: tuple[Any, ...]) -> Any:
        """numba's result for argument types, and let the runtime know that its code may be interrupted anywhere."""
        from numba.core.errors import ForceLiteralArg, NumbaError, UnsupportedBytecodeError

        from .compile import warn_if_missing
        from .refuse import libraries_of, refuse_unfit

        with self._lock:
            try:
                self._probed.compile(argtypes)
            except ForceLiteralArg as error:
                raise CorelaneError(
                    f"compile batch function {self.__name__}",
                    "it or what it calls wants an argument as a literal (numba.literally), and a job's are variables",
                    "write a batch function that calls it with the constant",
                ) from error
            # NotImplementedError: of some types that cannot be returned.
            except (NumbaError, UnsupportedBytecodeError, NotImplementedError) as error:
                raise CorelaneError(
                    f"compile batch function {self.__name__}",
                    plain_text(error),
                    "mend it, or run it as plain Python with compiled=False",
                ) from error
            made = self._probed.overloads[argtypes]
            self.report = made.library.report
            if argtypes not in self._ranges:
                refuse_unfit(self.__name__, libraries_of(self._probed, made))
                symbol = made.fndesc.llvm_func_name
                begin, end = self._ranges[argtypes] = made.library.code_range(symbol)
                _add_preemptible(begin, end)
                codes.tell(codes.Code(begin, end, self.__name__, symbol, made.library._get_compiled_object()))
                warn_if_missing(f"batch function {self.__name__}", self.report)
                if self.report.unprobed_calls and not self._warned and not _draws(argtypes):
                    self._warned = True
                    _log.warning(
                        "batch function %s calls functions through pointers, or itself with constants or other "
                        "types, which runs without probes: until that returns, its core moves by the signal; call "
                        "functions by name, and itself with variables of the same types",
                        self.__name__,
                    )
            return made


def _is_reflected(kind: Any) -> bool:
    """Whether numba copies it from a Python object, and what a function changes back into that when it returns."""
    return getattr(kind, "reflected", False) or any(_is_reflected(part) for part in getattr(kind, "types", ()))


def _draws(argtypes: tuple[Any, ...]) -> bool:
    """Whether there is a generator among them, whose draws are calls through pointers, and short."""
    from numba.core.types import NumPyRandomGeneratorType

    return any(isinstance(kind, NumPyRandomGeneratorType) for kind in argtypes)


def _add_preemptible(begin: int, end: int) -> None:
    """Machine code that a signal may interrupt and leave for another kthread to resume (docs/cores.md).

    It is never taken back: numba frees no code.
    """
    err = lib.cl_preemptible_add(ffi.cast("void *", begin), ffi.cast("void *", end))
    if err:  # no room for more: this code is ceded from in place, like any other
        _log.warning("no room to register a batch function as interruptible: %s", os.strerror(-err))


_ON_THE_CALLERS_STACK = (inspect.isgeneratorfunction, inspect.iscoroutinefunction, inspect.isasyncgenfunction)

# njit's options that batch work keeps: what they change are results, which are to be those of njit.
_TAKEN = ("error_model", "fastmath", "boundscheck", "locals")
# Those that say what batch work has anyway, or how others call the function.
_NEEDLESS = ("nopython", "nogil", "inline", "forceinline", "no_cpython_wrapper", "no_cfunc_wrapper")


def batch(function: Any = None, *, compiled: bool = True, **options: Any) -> Any:
    """Decorator: make a function batch work, for `Runtime.batch`.

    compiled=True: numba compiles it (nopython, nogil) when it is first called with arguments of a type, and its loops
    and recursive calls get probes; so do those of compiled functions that it calls. The results are those of the same
    function under `numba.njit`, bit for bit. options: error_model, fastmath, boundscheck and locals, as numba has them;
    what `njit` has wrapped keeps its own where none is given here. compiled=False: any Python function; it moves by
    the signal only.

    Raises CorelaneError for generators, for what cannot be called, and for other options of njit.
    """
    _check_options("make a batch function", options, compiled)

    def decorate(target: Any) -> Batch:
        python = getattr(target, "py_func", target)  # what njit has wrapped is compiled anew
        if not callable(python):
            raise CorelaneError("make a batch function", f"{target!r} cannot be called", "decorate a function")
        if compiled and not inspect.isfunction(python):
            hint = "wrap it in one, or run it as it is with compiled=False"
            raise CorelaneError("make a batch function", f"{target!r} is not written in Python", hint)
        if any(kind(python) for kind in _ON_THE_CALLERS_STACK):
            raise CorelaneError(
                f"make a batch function of {python.__name__}",
                "it is a generator or a coroutine, which runs on its caller's stack",
                "put the loop that uses it into the batch function",
            )
        if not compiled:
            return Batch(python, compiled=False, options={})
        return Batch(python, compiled=True, options=_options_of(target, python.__name__) | options)

    return decorate if function is None else decorate(function)


def _check_options(what: str, options: dict[str, Any], compiled: bool) -> None:
    for name in options:
        if name == "parallel":
            why = "parallel=True starts threads that the runtime knows nothing of"
            raise CorelaneError(what, why, "start one job for each part")
        if name not in _TAKEN:
            raise CorelaneError(
                what, f"option {name!r} of numba is not supported", f"those that are: {', '.join(_TAKEN)}"
            )
        if not compiled:
            raise CorelaneError(what, f"{name} is an option of compiled functions", "leave it out with compiled=False")
    model = options.get("error_model", "python")
    if model not in ("python", "numpy"):
        raise CorelaneError(what, f"error_model {model!r}", 'one of: "python", "numpy"')


def _options_of(target: Any, name: str) -> dict[str, Any]:
    """What njit was given for a function that it has wrapped. Raises CorelaneError for what has no counterpart here."""
    given = dict(getattr(target, "targetoptions", {}))
    if getattr(target, "locals", None):
        given["locals"] = target.locals
    kept = {o: value for o, value in given.items() if o in _TAKEN or (value and o not in _NEEDLESS)}
    _check_options(f"make a batch function of {name}", kept, compiled=True)
    return kept


class _Alive:
    """Jobs whose uthread may still run: what it works on must stay, whatever becomes of the handle.

    Looking for those that have ended costs by those, and by runtimes, not by how many are at work.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._by_event: dict[int, Job] = {}
        self._by_runtime: dict[Any, set[Job]] = {}
        self._events = select.epoll()

    def __contains__(self, job: object) -> bool:
        return isinstance(job, Job) and self._by_event.get(job._event) is job

    def __iter__(self) -> Iterator[Job]:
        with self._lock:
            return iter(list(self._by_event.values()))

    def of(self, runtime: Any) -> list[Job]:
        """Those of a runtime."""
        with self._lock:
            return list(self._by_runtime.get(runtime, ()))

    def add(self, job: Job) -> None:
        with self._lock:
            self._events.register(job._event, select.EPOLLIN)
            self._by_event[job._event] = job
            self._by_runtime.setdefault(job._runtime, set()).add(job)

    def discard(self, job: Job) -> None:
        with self._lock:
            if self._by_event.get(job._event) is not job:
                return
            del self._by_event[job._event]
            self._events.unregister(job._event)  # not left to its close: a fork may have another copy of it
            of_runtime = self._by_runtime[job._runtime]
            of_runtime.discard(job)
            if not of_runtime:
                del self._by_runtime[job._runtime]

    def let_ended_go(self) -> None:
        """Take the results of jobs that have ended: one that nobody asks for keeps no frame and no descriptor for long.

        Nor does one that never will, as its runtime was stopped or closed before.
        """
        with self._lock:  # before the look: what ended before the stop is taken
            left = [job for runtime, jobs in self._by_runtime.items() if runtime.ended for job in jobs]
            ended = [self._by_event[event] for event, _ in self._events.poll(0, max(1, len(self._by_event)))]
        for job in ended:
            job._take()
        for job in left:
            self.discard(job)


_alive = _Alive()


def _forget_alive() -> None:
    """In the child of a fork, where no kthread is left: its jobs are to have an epoll of their own."""
    global _alive
    _alive = _Alive()


os.register_at_fork(after_in_child=_forget_alive)


class Job:
    """A batch function at work, from `Runtime.batch`. May be used from any Python thread."""

    def __init__(self, name: str, runtime: Any) -> None:
        self._name = name
        self._runtime = runtime
        self._event = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._lock = threading.Lock()
        self._fetched = False
        self._value: Any = None
        self._error: BaseException | None = None

    def start(self, spawn: Callable[[Any, Any], None]) -> None:
        """Spawn the uthread. Once, by Runtime.batch."""
        _alive.let_ended_go()
        function, arg = self._prepare()
        if self._runtime.attached:
            keep_to_one()
        _alive.add(self)
        try:
            spawn(function, arg)
        except BaseException:
            _alive.discard(self)
            raise

    def _prepare(self) -> tuple[Any, Any]:
        raise NotImplementedError

    def _fetch(self) -> Any:
        """The result, or raises what the function raised."""
        raise NotImplementedError

    def works_on(self, arg: int) -> bool:
        """Whether that address is what its uthread was given."""
        raise NotImplementedError

    @property
    def name(self) -> str:
        """Of its function."""
        return self._name

    def done(self) -> bool:
        """Whether it has ended, well or badly."""
        if not self._fetched and self._wait(0.0):
            self._take()
        return self._fetched

    def result(self, timeout_s: float | None = None) -> Any:
        """What the function returned, or raises what it raised. May be called again.

        Raises TimeoutError after timeout_s, and CorelaneError if the runtime was stopped before the job ended.
        """
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        while not self._fetched:
            rest = 0.1 if deadline is None else min(0.1, max(0.0, deadline - time.monotonic()))
            stopped = self._runtime.stopped  # before the wait: what ended before the stop is seen by it
            if self._wait(rest):
                self._take()
            elif stopped:
                raise CorelaneError(f"result of {self._name}", "the runtime was stopped before it ended")
            elif deadline is not None and time.monotonic() >= deadline:
                raise TimeoutError(f"{self._name} has not ended after {timeout_s} s")
        if self._error is not None:
            raise self._error
        return self._value

    def _wait(self, seconds: float) -> bool:
        poll = select.poll()
        poll.register(self._event, select.POLLIN)
        return bool(poll.poll(seconds * 1000))

    def _take(self) -> None:
        with self._lock:
            if self._fetched:
                return
            try:
                self._value = self._fetch()
            except BaseException as error:
                self._error = error
            self._fetched = True
        _alive.discard(self)

    def __repr__(self) -> str:
        return f"<batch job {self._name}, {'done' if self.done() else 'not done'}>"

    def __del__(self, close: Callable[[int], None] = os.close) -> None:  # bound here: `os` may be gone at the end
        if getattr(self, "_event", -1) >= 0:
            close(self._event)


class CompiledJob(Job):
    """Of a compiled function: its arguments and its result lie in a frame (frame.py)."""

    def __init__(self, function: Batch, args: tuple[Any, ...], runtime: Any) -> None:
        super().__init__(function.__name__, runtime)
        import numba
        from numba.core.errors import NumbaError

        from . import frame as batch_frame
        from . import refuse as batch_refuse

        what = f"run batch function {self._name}"
        try:
            argtypes = tuple(numba.typeof(arg) for arg in args)
        except (ValueError, NumbaError) as error:
            hint = "give numbers and numpy arrays, and functions that numba.njit has wrapped"
            raise CorelaneError(what, plain_text(error), hint) from error
        if any(_is_reflected(kind) for kind in argtypes):
            why = "a list or set of Python is copied when a job starts, and what the job changes in it would be lost"
            raise CorelaneError(what, why, "give a numpy array or a numba.typed.List")
        made = function.compile(argtypes)
        reached = batch_refuse.libraries_of(function._probed, made, args)
        batch_refuse.refuse_unfit(self._name, reached)
        batch_refuse.refuse_small_stack(what, batch_refuse.stack_bytes(reached), runtime.stack_bytes)
        returns = made.signature.return_type
        if isinstance(returns, numba.types.Generator):
            raise CorelaneError(what, "it returns a generator", "return an array")
        self._calls = batch_frame.calls(returns, argtypes)
        self._keep = (function, made, args)
        self._memory = ffi.new("uint64_t[]", (self._calls.bytes + 7) // 8 + 7)
        self._frame = (int(ffi.cast("uintptr_t", self._memory)) + 63) & ~63
        head = ffi.cast("uint64_t *", self._frame)
        head[0] = made.library.get_pointer_to_function(made.fndesc.llvm_func_name)
        head[1] = self._event
        self._calls.store(self._frame, *args)

    def _prepare(self) -> tuple[Any, Any]:
        return self._calls.entry, self._frame

    def _fetch(self) -> Any:
        return self._calls.fetch(self._frame)

    def works_on(self, arg: int) -> bool:
        return arg == self._frame


class PythonJob(Job):
    """Of a plain Python function: called on the kthread's own stack, since frames of CPython must nest."""

    def __init__(self, function: Batch, args: tuple[Any, ...], runtime: Any) -> None:
        super().__init__(function.__name__, runtime)
        self._function, self._args = function.function, args
        self._callback = ffi.callback("void (void *)", self._run)
        self._call = ffi.new("struct cl_batch_call *", {"fn": self._callback, "arg": ffi.NULL})
        self._returned: Any = None
        self._raised: BaseException | None = None

    def _prepare(self) -> tuple[Any, Any]:
        return ffi.addressof(lib, "cl_batch_foreign"), self._call

    def works_on(self, arg: int) -> bool:
        return arg == int(ffi.cast("uintptr_t", self._call))

    def _run(self, arg: Any) -> None:
        try:
            self._returned = self._function(*self._args)
        except BaseException as error:
            self._raised = error
        os.eventfd_write(self._event, 1)

    def _fetch(self) -> Any:
        if self._raised is not None:
            raise self._raised
        return self._returned


def name_of(runtime: Any, arg: int) -> str:
    """The job of a runtime whose uthread was given the address `arg`, by name; "" if it is none's."""
    return next((job.name for job in _alive.of(runtime) if job.works_on(arg)), "")


def start(
    runtime: Any,
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    spawn: Callable[[Any, Any], None] | None = None,
) -> Job:
    """What Runtime.batch does. spawn: in a scope, which starts what is compiled alone."""
    if isinstance(function, types.MethodType) and isinstance(function.__func__, Batch):
        function, args = function.__func__, (function.__self__, *args)
    if function is None:  # without one `batch` is a decorator
        raise CorelaneError("start a job", "None cannot be called", "give a function, and its arguments")
    made = function if isinstance(function, Batch) else batch(function)
    if spawn is not None and not made.compiled:
        why = "it is plain Python, which runs to its end: no cancel reaches it"
        raise CorelaneError(f"start {made.__name__} in a scope", why, "compile it, or start it by Runtime.batch")
    kind = CompiledJob if made.compiled else PythonJob
    job = kind(made, made.bind(args, kwargs), runtime)
    job.start(spawn or runtime.spawn)
    return job
