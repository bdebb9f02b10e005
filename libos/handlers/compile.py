"""Compiling a Python function into a request handler that C calls without the GIL.

The handler itself is an ordinary njit function on `PacketView`s (libos/numba/views.py), cached on disk. Around it goes
a small entry point with the C signature of `cl_udp_handler`, which has the handler's code in it, with probes in its
loops (libos/batch_work/probes.py), so that a quantum and a move of the core reach it as they reach batch work. A
handler that raises makes the entry return CL_HANDLER_RAISED: the request is counted as faulted, nobody takes the GIL,
and the server goes on.

At registration the LLVM code is looked at. What can make a request slow or fail is named, with the line where numba
knows it: raising, allocating, reference counting of Python objects.
Importing this module imports numba.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numba
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.errors import NumbaError, UnsupportedBytecodeError
from numba.core.extending import intrinsic

from ...runtime.errors import CorelaneError, plain_text
from .._native import lib
from ..batch_work.compile import ProbedLibrary, default_target, probed_compiler, warn_if_missing
from ..batch_work.refill import Target
from ..batch_work.refuse import libraries_of, stack_bytes
from ..numba.cache import enable_cache, load_library, without_numbas_own
from ..numba.views import make_view, reply_view_t, request_view_t
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
_CLASSIFIER = types.int64(types.CPointer(types.uint8), types.int64, types.voidptr)
_PERIODIC = types.int64(types.voidptr)
# What is compiled: what it may return besides an integer, and what to do if it returns anything else.
_ANSWERS = {
    "handler": ((), "the reply's length as an integer, 0 for no reply"),
    "classifier": ((types.Boolean,), "the request's type, an integer from 0 on"),
    "periodic work": ((types.NoneType,), ""),
    "stream handler": ((), "two integers: how many bytes it took, and the answer's length"),
    "HTTP handler": ((), "two integers: the status, and the length of the answer's body"),
}
_PAIRS = ("stream handler", "HTTP handler")
_NAMES = {
    "periodic work": ("state",),
    "stream handler": ("data", "reply", "state"),
    "HTTP handler": ("target", "body", "reply", "state"),
}


class Remark(NamedTuple):
    """What the lint found in one line, and the line of the handler's source that it is about."""

    text: str
    line: int


class Build(NamedTuple):
    """How entries are built. target: of their probes; None: this process's. library: numba's class (ProbedLibrary) of
    their code. unprobed: of the code of classifiers, which run in the scheduler's loop; None: numba's own."""

    target: Target | None = None
    library: type[Any] = ProbedLibrary
    unprobed: type[Any] | None = None

    def pipeline(self, probes: bool) -> dict[str, Any]:
        """Options for numba."""
        library: Any = self.library if probes else self.unprobed
        if library is None:
            return {}
        return {"pipeline_class": probed_compiler(self.target or default_target(), library)}


HERE = Build()


@dataclass(frozen=True, slots=True)
class CompiledHandler:
    """A handler as C sees it.

    address: of the entry point. remarks: what the lint found. from_cache: whether the code came from
    the disk. keep: what must stay alive as long as C may call the address. arg: its state's address, which C hands to
    it; 0 for none. stack_bytes: the least that a uthread which runs it must have, 0 for any. dispatcher, entry: numba's
    objects of the function and of the entry point.
    """

    address: int
    remarks: tuple[Remark, ...]
    from_cache: bool
    keep: tuple[object, ...]
    arg: int = 0
    stack_bytes: int = 0
    dispatcher: Any = None
    entry: Any = None


def _is_two_integers(kind: Any) -> bool:
    return isinstance(kind, types.BaseTuple) and len(kind) == 2 and all(isinstance(k, types.Integer) for k in kind)


class _Found(NamedTuple):
    """What was found in the code, kept beside it in the cache."""

    remarks: tuple[Remark, ...]
    opens_scopes: bool


def _call(context: Any, builder: Any, overload: Any, opens: bool, args: Any) -> tuple[Any, Any]:
    """Call it for its status and result. What it has left open of scopes (scope.h) is cancelled and closed."""
    i8p = ir.IntType(8).as_pointer()
    if opens:
        fnty = ir.FunctionType(i8p, [])
        before = builder.call(cgutils.get_or_insert_function(builder.module, fnty, "cl_scope_self"), [])
    status, result = context.call_internal_no_propagate(builder, overload.fndesc, overload.signature, args)
    if opens:
        fnty = ir.FunctionType(ir.VoidType(), [i8p])
        builder.call(cgutils.get_or_insert_function(builder.module, fnty, "cl_scope_unwind"), [before])
    return status, result


def _guarded_stream(overload: Any, opens: bool) -> Any:
    """The same for one that returns two integers: the second goes where a pointer says."""
    returns = overload.signature.return_type

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        context.add_linking_libs((overload.library,))
        *args, where = args
        status, result = _call(context, builder, overload, opens, args)
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


def _guarded(dispatcher: Any, argtypes: tuple[Any, ...], what: str, opens: bool) -> Any:
    """An intrinsic that calls one overload and turns a raised exception into CL_HANDLER_RAISED."""
    overload = dispatcher.overloads[argtypes]
    returns = overload.signature.return_type
    other, answer = _ANSWERS[what]
    if what in _PAIRS and _is_two_integers(returns):
        return _guarded_stream(overload, opens)
    if what in _PAIRS or not isinstance(returns, (types.Integer, *other)):
        kind = "nothing" if isinstance(returns, types.NoneType) else str(returns)
        if isinstance(returns, types.Optional):
            kind = f"{returns.type}, and on some way nothing"
        mend = f"return {answer or 'nothing, or an integer'}"
        raise CorelaneError(f"compile {what} {name_of(dispatcher.py_func)}", f"it returns {kind}", mend)

    def emit(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        context.add_linking_libs((overload.library,))
        status, result = _call(context, builder, overload, opens, args)
        raised = context.get_constant(types.int64, lib.CL_HANDLER_RAISED)
        length = context.get_constant(types.int64, 0)
        if not isinstance(returns, types.NoneType):
            length = context.cast(builder, result, returns, types.int64)
        return builder.select(status.is_error, raised, length)

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

    return (call_alone, call_of_one, call, call_with_state)[len(argtypes)]


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


def _unescape(text: str) -> bytes:
    """The bytes of an LLVM string constant: a backslash is written twice, other odd bytes as two hexadecimal digits."""
    return re.sub(r"\\(\\|[0-9A-Fa-f]{2})", lambda m: "\\" if m[1] == "\\" else chr(int(m[1], 16)), text).encode(
        "latin-1"
    )


def _exceptions(text: str, function: Any) -> list[Remark]:
    """What numba's code may raise, from the pickled exceptions among its constants: 'ValueError: ... (line 12)'."""
    code, found = function.__code__, set()
    raised = set(re.findall(r"store ptr @\.const\.picklebuf\.(\w+),", text))
    for match in re.finditer(r'@\.const\.pickledata\.(\w+) = [^\n]*?c"([^"\n]*)"\n', text):
        if match[1] not in raised:
            continue
        raw = _unescape(match[2])
        try:
            kind, args, where = pickle.loads(raw)
        except Exception:  # what numba keeps there is its own business: a remark less
            continue
        if args and str(args[0]).startswith("missing Environment"):  # print() and its like, which take the GIL as well
            continue
        name = getattr(kind, "__name__", str(kind))
        what = f"may raise {name}: {args[0]}" if args else f"may raise {name}"
        if where is None:
            found.add(Remark(what, code.co_firstlineno))
        elif where[1] == code.co_filename:
            found.add(Remark(f"{what} (line {where[2]})", int(where[2])))
        else:
            found.add(Remark(f"{what} ({where[1]}, line {where[2]})", code.co_firstlineno))
    return sorted(found)


def _allocating_lines(function: Callable[..., Any]) -> list[int]:
    """Lines of calls that are known to allocate, as far as the source tells."""
    try:
        source, first = inspect.getsourcelines(function)
        tree = ast.parse(inspect.cleandoc("".join(source)))
    except (OSError, SyntaxError, TypeError):
        return []
    names = {"empty", "zeros", "ones", "full", "array", "arange", "copy", "concatenate", "list", "dict", "bytes", "str"}
    lines = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.List | ast.Dict | ast.ListComp | ast.JoinedStr):
            lines.add(first + node.lineno - 1)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
            if called in names:
                lines.add(first + node.lineno - 1)
    return sorted(lines)


def lint(text: str, function: Callable[..., Any]) -> tuple[Remark, ...]:
    """Remarks on a handler's LLVM code: what may raise, allocate or need the GIL."""
    remarks = _exceptions(text, function)
    first = function.__code__.co_firstlineno
    called = set(re.findall(r"\bcall\b[^\n]*?@([\w.$]+)", text))
    if any(name.startswith("PyErr_") for name in called) and not remarks:
        remarks.append(Remark("may raise", first))
    if any(name.startswith(("NRT_MemInfo_alloc", "NRT_Allocate")) for name in called):
        lines = _allocating_lines(function)
        where = f" (line {', '.join(map(str, lines))})" if lines else ""
        remarks.append(Remark(f"allocates memory for a request{where}", lines[0] if lines else first))
    if "numba_gil_ensure" in called:
        remarks.append(Remark("takes the GIL, so it waits for Python code of this process", first))
    return tuple(remarks)


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


def compile_http(function: Callable[..., Any], state: Any = None, *, cache: bool = True) -> CompiledHandler:
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
    return _compile(function, "HTTP handler", argtypes, entry_of, cache, shared, HERE)


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


def _compile(
    function: Callable[..., Any],
    what: str,
    argtypes: tuple[Any, ...],
    entry_of: Callable[[Any], tuple[Any, Callable[..., Any]]],
    cache: bool,
    shared: State | None,
    build: Build,
) -> CompiledHandler:
    """One overload of the function, and the entry point that C calls."""
    load_library()
    python = getattr(function, "py_func", function)
    names = _NAMES.get(what, ("request", "reply", "state"))
    check_compiled(what, python, names[: len(argtypes)], _ANSWERS[what][1])
    dispatcher = numba.njit(error_model="numpy", nogil=True, no_cpython_wrapper=True, no_cfunc_wrapper=True)(python)

    def describe(compiled: Any) -> _Found:
        text = compiled.library.get_llvm_str()
        return _Found(lint(text, python), "cl_scope_open" in text)

    cache = cache and (shared is None or shared.stable)
    kept = enable_cache(dispatcher, argtypes, describe) if cache else None
    try:
        with without_numbas_own(python):
            dispatcher.compile(argtypes)
        found: _Found | None = kept.remarks if kept is not None else None
        if found is None:
            found = describe(dispatcher.overloads[argtypes])
        call = _guarded(dispatcher, argtypes, what, found.opens_scopes)
        signature, python_entry = entry_of(call)
        # All that the handler calls becomes a part of the entry's code, and gets its probes there. The dispatcher's own
        # code has none: so what is kept on disk holds for any process.
        probes = what != "classifier"
        entry = numba.cfunc(signature, error_model="numpy", nopython=True, **build.pipeline(probes))(python_entry)
    except (NumbaError, UnsupportedBytecodeError) as error:
        mend = "mend it, or run it as plain Python with compiled=False" if what != "classifier" else "mend it"
        if "STORE_GLOBAL" in str(error):
            mend = "globals are constants of compiled code: keep what changes in `state`"
        raise CorelaneError(f"compile {what} {name_of(python)}", plain_text(error), mend) from error
    stack = 0
    if probes:
        warn_if_missing(f"{what} {name_of(python)}", entry._library.report)
        stack = stack_bytes([entry._library, *libraries_of(dispatcher, dispatcher.overloads[argtypes])])
    from_cache = kept is not None and kept.hit
    arg, keep = (shared.address, shared.keep) if shared is not None else (0, ())
    return CompiledHandler(
        entry.address, found.remarks, from_cache, (dispatcher, entry, call, keep), arg, stack, dispatcher, entry
    )
