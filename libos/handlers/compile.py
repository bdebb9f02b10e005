"""Compiling a Python function into a request handler that C calls without the GIL.

The handler itself is an ordinary njit function on `PacketView`s (libos/numba/views.py), cached on disk. Around it goes
a small entry point with the C signature of `cl_udp_handler`, which has the handler's code in it, with probes in its
loops (libos/batch_work/probes.py), so that a quantum and a move of the core reach it as they reach batch work. A
handler that raises makes the entry return CL_HANDLER_RAISED: the request is counted as faulted, what was raised and
where is told (libos/raised.h), nobody takes the GIL, and the server goes on.

At registration the LLVM code is looked at (lint.py). Importing this module imports numba.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaError
from numba.core.extending import intrinsic

from ...runtime import codes
from ...runtime.errors import CorelaneError, plain_text
from .._native import lib
from ..batch_work.compile import EntryLibrary, UnprobedEntryLibrary, default_target, probed_compiler, warn_if_missing
from ..batch_work.refill import Target
from ..batch_work.refuse import libraries_of, stack_bytes
from ..numba.batches import all_raised, lengths_t, make_burst, replies_t, requests_t
from ..numba.cache import enable_cache, load_library, without_numbas_own
from ..numba.exceptions import let_go, tell
from ..numba.lines import stripped as without_lines
from ..numba.lines import wants as has_lines
from ..numba.lines import with_lines
from ..numba.views import array_value, make_view, reply_view_t, request_view_t
from .compiled import CompiledHandler, Remark
from .lint import lint
from .shape import check_compiled, name_of
from .state import State, state_of

_SIGNATURE = types.int64(
    types.CPointer(types.uint8), types.int64, types.CPointer(types.uint8), types.int64, types.voidptr
)
_STREAM = types.int64(
    types.CPointer(types.uint8),
    types.int64,
    types.CPointer(types.uint8),
    types.int64,
    types.CPointer(types.int64),
    types.voidptr,
)
_HTTP = types.int64(
    *(types.CPointer(types.uint8), types.int64) * 3,
    types.CPointer(types.int64),
    types.voidptr,
)
_BATCH = types.void(types.voidptr, types.uint32, types.voidptr)
_CLASSIFIER = types.int64(types.CPointer(types.uint8), types.int64, types.voidptr)
_PERIODIC = types.int64(types.voidptr)
# What is compiled: what it may return besides an integer, and what to do if it returns anything else.
_ANSWERS = {
    "handler": ((), "the reply's length as an integer, 0 for no reply"),
    "batch handler": ((types.NoneType,), ""),
    "classifier": ((types.Boolean,), "the request's type, an integer from 0 on"),
    "periodic work": ((types.NoneType,), ""),
    "stream handler": ((), "two integers: how many bytes it took, and the answer's length"),
    "HTTP handler": ((), "two integers: the status, and the length of the answer's body"),
    "job": ((types.NoneType,), ""),
}
_PAIRS = ("stream handler", "HTTP handler")
_NAMES = {
    "periodic work": ("state",),
    "batch handler": ("requests", "replies", "lengths", "state"),
    "stream handler": ("data", "reply", "state"),
    "HTTP handler": ("target", "body", "reply", "state"),
}


class Build(NamedTuple):
    """How entries are built. target: of their probes; None: this process's. library: numba's class (EntryLibrary) of
    their code. unprobed: of the code of classifiers, which run in the scheduler's loop. own_memory: it takes memory by
    libos/service/memory.h, not from numba's runtime."""

    target: Target | None = None
    library: type[Any] = EntryLibrary
    unprobed: type[Any] = UnprobedEntryLibrary
    own_memory: bool = False

    def pipeline(self, probes: bool) -> dict[str, Any]:
        """Options for numba."""
        library: Any = self.library if probes else self.unprobed
        return {"pipeline_class": probed_compiler(self.target or default_target(), library)}


HERE = Build()


def _is_two_integers(kind: Any) -> bool:
    return isinstance(kind, types.BaseTuple) and len(kind) == 2 and all(isinstance(k, types.Integer) for k in kind)


class _Found(NamedTuple):
    """What was found in the code, kept beside it in the cache."""

    remarks: tuple[Remark, ...]
    opens_scopes: bool
    allocates: bool
    starts_uthreads: bool


class _Around(NamedTuple):
    """What an entry does before and behind the call. scopes: cancel and close what was left open of them (scope.h).
    memory: give back what an exception has left behind (memory.h). what: is called, as in "handler"; function:
    Python's."""

    scopes: bool
    memory: bool
    what: str
    function: Any


def _call(context: Any, builder: Any, overload: Any, around: _Around, args: Any) -> tuple[Any, Any]:
    """Call it for its status and result."""
    i8p, i32 = ir.IntType(8).as_pointer(), ir.IntType(32)
    if around.memory:
        blocks = builder.bitcast(cgutils.alloca_once(builder, ir.ArrayType(i8p, 2)), i8p)
        fnty = ir.FunctionType(ir.VoidType(), [i8p])
        builder.call(cgutils.get_or_insert_function(builder.module, fnty, "cl_blocks_enter"), [blocks])
    if around.scopes:
        fnty = ir.FunctionType(i8p, [])
        before = builder.call(cgutils.get_or_insert_function(builder.module, fnty, "cl_scope_self"), [])
    status, result = context.call_internal_no_propagate(builder, overload.fndesc, overload.signature, args)
    if around.scopes:
        fnty = ir.FunctionType(ir.VoidType(), [i8p])
        builder.call(cgutils.get_or_insert_function(builder.module, fnty, "cl_scope_unwind"), [before])
    tell(context, builder, status, around.what, around.function)
    let_go(context, builder, status)
    if around.memory:
        fnty = ir.FunctionType(ir.VoidType(), [i8p, i32])
        leave = cgutils.get_or_insert_function(builder.module, fnty, "cl_blocks_leave")
        builder.call(leave, [blocks, builder.zext(status.is_error, i32)])
    return status, result


def _guarded_stream(overload: Any, around: _Around) -> Any:
    """The same for one that returns two integers: the second goes where a pointer says."""
    returns = overload.signature.return_type

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        context.add_linking_libs((overload.library,))
        *args, where = args
        status, result = _call(context, builder, overload, around, args)
        raised, none = (context.get_constant(types.int64, n) for n in (lib.CL_HANDLER_RAISED, 0))
        took, answered = (
            context.cast(builder, builder.extract_value(result, i), returns[i], types.int64) for i in range(2)
        )
        builder.store(builder.select(status.is_error, none, answered), where)
        return builder.select(status.is_error, raised, took)

    @intrinsic
    def call(typingctx: Any, data: Any, reply: Any, answered: Any) -> Any:
        return types.int64(data, reply, answered), emit

    @intrinsic
    def call_with_state(typingctx: Any, data: Any, reply: Any, state: Any, answered: Any) -> Any:
        return types.int64(data, reply, state, answered), emit

    @intrinsic
    def call_of_four(typingctx: Any, target: Any, body: Any, reply: Any, state: Any, answered: Any) -> Any:
        return types.int64(target, body, reply, state, answered), emit

    return (call, call_with_state, call_of_four)[len(overload.signature.args) - 2]


def _guarded(dispatcher: Any, argtypes: tuple[Any, ...], what: str, around: _Around) -> Any:
    """An intrinsic that calls one overload and turns a raised exception into CL_HANDLER_RAISED."""
    overload = dispatcher.overloads[argtypes]
    returns = overload.signature.return_type
    other, answer = _ANSWERS[what]
    if what in _PAIRS and _is_two_integers(returns):
        return _guarded_stream(overload, around)
    if what in _PAIRS or not isinstance(returns, (types.Integer, *other)):
        kind = "nothing" if isinstance(returns, types.NoneType) else str(returns)
        if isinstance(returns, types.Optional):
            kind = f"{returns.type}, and on some way nothing"
        mend = f"return {answer or 'nothing, or an integer'}"
        code = dispatcher.py_func.__code__
        why = f"it returns {kind} ({code.co_filename}, line {code.co_firstlineno})"
        raise CorelaneError(f"compile {what} {name_of(dispatcher.py_func)}", why, mend)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        context.add_linking_libs((overload.library,))
        status, result = _call(context, builder, overload, around, args)
        raised = context.get_constant(types.int64, lib.CL_HANDLER_RAISED)
        length = context.get_constant(types.int64, 0)
        if not isinstance(returns, types.NoneType):
            length = context.cast(builder, result, returns, types.int64)
        return builder.select(status.is_error, raised, length)

    @intrinsic
    def call_of_all(typingctx: Any, given: Any) -> Any:
        def emit_all(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return emit(context, builder, sig, cgutils.unpack_tuple(builder, args[0], len(argtypes)))

        return types.int64(given), emit_all

    @intrinsic
    def call_alone(typingctx: Any) -> Any:
        return types.int64(), emit

    @intrinsic
    def call_of_one(typingctx: Any, request_or_state: Any) -> Any:
        return types.int64(request_or_state), emit

    @intrinsic
    def call(typingctx: Any, request: Any, reply: Any) -> Any:
        return types.int64(request, reply), emit

    @intrinsic
    def call_with_state(typingctx: Any, request: Any, reply: Any, state: Any) -> Any:
        return types.int64(request, reply, state), emit

    @intrinsic
    def call_of_four(typingctx: Any, requests: Any, replies: Any, lengths: Any, state: Any) -> Any:
        return types.int64(requests, replies, lengths, state), emit

    return (
        call_of_all if what == "job" else (call_alone, call_of_one, call, call_with_state, call_of_four)[len(argtypes)]
    )


def _entry(call: Any, shared: State | None) -> Callable[..., Any]:
    """The C entry point as a Python function for numba to compile."""
    if shared is None:

        def entry(request: Any, length: int, reply: Any, room: int, arg: Any) -> Any:
            return call(make_view(request, length, True), make_view(reply, room, False))

        return entry
    state_at = shared.at

    def entry_with_state(request: Any, length: int, reply: Any, room: int, arg: Any) -> Any:
        return call(make_view(request, length, True), make_view(reply, room, False), state_at(arg))

    return entry_with_state


def compile_handler(
    function: Callable[..., Any], state: Any = None, *, cache: bool = True, build: Build = HERE
) -> CompiledHandler:
    """Compile `function(request, reply)` or `function(request, reply, state)`.

    request, reply: `PacketView`s, uint8 views of the datagram's payload and of the room for the reply. state: what all
    calls share (state.py), or None; an array's contents change, its address and shape must not. An already jitted
    function is taken by its Python source. Raises CorelaneError with numba's reason if it cannot be compiled.
    """
    shared = None if state is None else state_of(state)
    argtypes: tuple[Any, ...] = (request_view_t, reply_view_t)
    if shared is not None:
        argtypes += (shared.kind,)
    return _compile(
        function, "handler", argtypes, lambda call: (_SIGNATURE, _entry(call, shared)), cache, shared, build
    )


def compile_batch(
    function: Callable[..., Any], state: Any = None, *, cache: bool = True, build: Build = HERE
) -> CompiledHandler:
    """Compile `function(requests, replies, lengths)`, or with `state`, into a cl_udp_burst_handler.

    requests, replies, lengths: of the burst (numba/batches.py). If it raises, or returns a negative integer, all of the
    burst are errors. State and errors as of `compile_handler`.
    """
    shared = None if state is None else state_of(state)

    def entry_of(call: Any) -> tuple[Any, Callable[..., Any]]:
        if shared is None:

            def entry(reqs: Any, n: int, arg: Any) -> None:
                requests, replies, lengths = make_burst(reqs, n)
                if call(requests, replies, lengths) < 0:
                    all_raised(reqs, n)

            return _BATCH, entry
        state_at = shared.at

        def entry_with_state(reqs: Any, n: int, arg: Any) -> None:
            requests, replies, lengths = make_burst(reqs, n)
            if call(requests, replies, lengths, state_at(arg)) < 0:
                all_raised(reqs, n)

        return _BATCH, entry_with_state

    argtypes: tuple[Any, ...] = (requests_t, replies_t, lengths_t)
    if shared is not None:
        argtypes += (shared.kind,)
    return _compile(function, "batch handler", argtypes, entry_of, cache, shared, build)


def compile_stream(
    function: Callable[..., Any], state: Any = None, *, cache: bool = True, build: Build = HERE
) -> CompiledHandler:
    """Compile `function(data, reply) -> (took, answered)`, or with `state`, into a cl_tcp_handler.

    Arguments and errors as of `compile_handler`.
    """
    shared = None if state is None else state_of(state)

    def entry_of(call: Any) -> tuple[Any, Callable[..., Any]]:
        if shared is None:

            def entry(data: Any, length: int, reply: Any, room: int, answered: Any, arg: Any) -> Any:
                return call(make_view(data, length, True), make_view(reply, room, False), answered)

            return _STREAM, entry
        state_at = shared.at

        def entry_with_state(data: Any, length: int, reply: Any, room: int, answered: Any, arg: Any) -> Any:
            return call(make_view(data, length, True), make_view(reply, room, False), state_at(arg), answered)

        return _STREAM, entry_with_state

    argtypes: tuple[Any, ...] = (request_view_t, reply_view_t)
    if shared is not None:
        argtypes += (shared.kind,)
    return _compile(function, "stream handler", argtypes, entry_of, cache, shared, build)


def compile_http(
    function: Callable[..., Any], state: Any = None, *, cache: bool = True, build: Build = HERE
) -> CompiledHandler:
    """Compile `function(target, body, reply) -> (status, length)`, or with `state`, into a cl_http_handler.

    Arguments and errors as of `compile_handler`.
    """
    shared = None if state is None else state_of(state)

    def entry_of(call: Any) -> tuple[Any, Callable[..., Any]]:
        if shared is None:

            def entry(t: Any, t_len: int, b: Any, b_len: int, reply: Any, room: int, answered: Any, arg: Any) -> Any:
                return call(
                    make_view(t, t_len, True), make_view(b, b_len, True), make_view(reply, room, False), answered
                )

            return _HTTP, entry
        state_at = shared.at

        def with_state(t: Any, t_len: int, b: Any, b_len: int, reply: Any, room: int, answered: Any, arg: Any) -> Any:
            views = make_view(t, t_len, True), make_view(b, b_len, True), make_view(reply, room, False)
            return call(views[0], views[1], views[2], state_at(arg), answered)

        return _HTTP, with_state

    argtypes: tuple[Any, ...] = (request_view_t, request_view_t, reply_view_t)
    if shared is not None:
        argtypes += (shared.kind,)
    return _compile(function, "HTTP handler", argtypes, entry_of, cache, shared, build)


def compile_classifier(function: Callable[..., Any], *, cache: bool = True, build: Build = HERE) -> CompiledHandler:
    """Compile `function(request) -> type` into a cl_udp_classifier; one that raises names no type.

    Raises CorelaneError with numba's reason if it cannot be compiled.
    """

    def entry_of(call: Any) -> tuple[Any, Callable[..., Any]]:
        def entry(request: Any, length: int, arg: Any) -> Any:
            return call(make_view(request, length, True))

        return _CLASSIFIER, entry

    return _compile(function, "classifier", (request_view_t,), entry_of, cache, None, build)


def compile_periodic(
    function: Callable[..., Any], state: Any = None, *, cache: bool = True, build: Build = HERE
) -> CompiledHandler:
    """Compile `function()` or `function(state)` into a cl_every_fn.

    Raises CorelaneError with numba's reason if it cannot be compiled.
    """
    shared = None if state is None else state_of(state)

    def entry_of(call: Any) -> tuple[Any, Callable[..., Any]]:
        if shared is None:

            def entry(arg: Any) -> Any:
                return call()

            return _PERIODIC, entry
        state_at = shared.at

        def entry_with_state(arg: Any) -> Any:
            return call(state_at(arg))

        return _PERIODIC, entry_with_state

    argtypes = () if shared is None else (shared.kind,)
    return _compile(function, "periodic work", argtypes, entry_of, cache, shared, build)


def _arguments(kinds: tuple[Any, ...], args: tuple[Any, ...]) -> Any:
    """An intrinsic that makes a tuple of the arguments of a job: numbers are constants, and where the arrays lie say
    the words at an address."""

    @intrinsic
    def given(typingctx: Any, pointer: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            i8p = ir.IntType(8).as_pointer()
            words, made = builder.bitcast(values[0], i8p.as_pointer()), []
            arrays = 0
            for kind, arg in zip(kinds, args, strict=True):
                if isinstance(kind, types.Array):
                    data = builder.load(builder.gep(words, [ir.Constant(ir.IntType(32), arrays)]))
                    made.append(array_value(context, builder, kind, arg.shape, data))
                    arrays += 1
                else:
                    made.append(context.get_constant_generic(builder, kind, arg))
            return context.make_tuple(builder, sig.return_type, made)

        return types.Tuple(kinds)(pointer), codegen

    return given


def compile_job(
    function: Callable[..., Any], args: tuple[Any, ...], options: Mapping[str, Any], *, build: Build
) -> CompiledHandler:
    """Compile the call `function(*args)` into a cl_every_fn, whose argument points to the addresses of the arrays
    among args. options: of numba's. Raises CorelaneError with numba's reason if it cannot be compiled."""
    try:
        kinds = tuple(numba.typeof(arg) for arg in args)
    except (ValueError, NumbaError) as error:
        raise CorelaneError(f"compile job {name_of(function)}", plain_text(error), "give numbers and arrays") from error
    given = _arguments(kinds, args)

    def entry_of(call: Any) -> tuple[Any, Callable[..., Any]]:
        def entry(arg: Any) -> Any:
            return call(given(arg))

        return _PERIODIC, entry

    return _compile(function, "job", kinds, entry_of, False, None, build, {"error_model": "python", **options})


def _compile(
    function: Callable[..., Any],
    what: str,
    argtypes: tuple[Any, ...],
    entry_of: Callable[[Any], tuple[Any, Callable[..., Any]]],
    cache: bool,
    shared: State | None,
    build: Build,
    options: Mapping[str, Any] | None = None,
) -> CompiledHandler:
    """One overload of the function, and the entry point that C calls."""
    load_library()
    python = getattr(function, "py_func", function)
    names = _NAMES.get(what, ("request", "reply", "state"))
    if what != "job":  # which has any number of arguments
        check_compiled(what, python, names[: len(argtypes)], _ANSWERS[what][1])
    chosen: dict[str, Any] = {"error_model": "numpy", **(options or {})}
    if has_lines(python):
        chosen["pipeline_class"] = with_lines()
    dispatcher = numba.njit(nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True, **chosen)(python)

    def describe(compiled: Any) -> _Found:
        text = without_lines(compiled.library.get_llvm_str())
        takes = "@NRT_MemInfo_" in text
        return _Found(lint(text, python), "cl_scope_open" in text, takes, "cl_scope_spawn" in text)

    cache = cache and (shared is None or shared.stable)
    kept = enable_cache(dispatcher, argtypes, describe) if cache else None
    try:
        with without_numbas_own(python):
            dispatcher.compile(argtypes)
        found: _Found | None = kept.remarks if kept is not None else None
        if found is None:
            found = describe(dispatcher.overloads[argtypes])
        owns = build.own_memory and found.allocates and not found.starts_uthreads
        call = _guarded(dispatcher, argtypes, what, _Around(found.opens_scopes, owns, what, python))
        signature, python_entry = entry_of(call)
        # All that the handler calls becomes a part of the entry's code, and gets its probes there. The dispatcher's own
        # code has none: so what is kept on disk holds for any process.
        probes = what != "classifier"
        entry = numba.cfunc(signature, error_model="numpy", nopython=True, **build.pipeline(probes))(python_entry)
    except CorelaneError:
        raise
    except Exception as error:  # numba's own kinds, and what else its passes raise for what they do not expect
        mend = "mend it, or run it as plain Python with compiled=False" if what != "classifier" else "mend it"
        if "STORE_GLOBAL" in str(error):
            mend = "globals are constants of compiled code: keep what changes in `state`"
        raise CorelaneError(f"compile {what} {name_of(python)}", plain_text(error), mend) from error
    stack = 0
    if probes:
        warn_if_missing(f"{what} {name_of(python)}", entry._library.report)
        stack = stack_bytes([entry._library, *libraries_of(dispatcher, dispatcher.overloads[argtypes])])
    if not build.own_memory:  # it stays in memory, and is not read from a file that has its name and lines
        begin, end = entry._library.code_range(entry.native_name)
        object_file = entry._library._get_compiled_object()
        codes.tell(codes.Code(begin, end, name_of(python), entry.native_name, object_file))
    from_cache = kept is not None and kept.hit
    arg, keep = (shared.address, shared.keep) if shared is not None else (0, ())
    return CompiledHandler(
        entry.address, found.remarks, from_cache, (dispatcher, entry, call, keep), arg, stack, dispatcher, entry
    )


COMPILERS: Mapping[str, Callable[..., CompiledHandler]] = {
    "handler": compile_handler,
    "batch handler": compile_batch,
    "stream handler": compile_stream,
    "HTTP handler": compile_http,
    "periodic work": compile_periodic,
    "classifier": lambda function, state, **how: compile_classifier(function, **how),
}
