"""The table that a service exports, and its state, as a module of LLVM's (corelane/libos/service.h)."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NamedTuple

from ...runtime.errors import CorelaneError
from .._native import lib
from ..handlers.batching import Batching, as_c
from .work import Http, Work

STATE_MOST = 16 << 20  # bytes of a state that are not 0: they lie in the object

_WORK = "{ i32, i32, i32, i32, i32, i32, i64, ptr, ptr, ptr, ptr, ptr, ptr }"
_SERVICE = "{ i64, i32, i32, i64, ptr, ptr, ptr, ptr, ptr }"
_HTTP = "{ ptr, ptr, i64, i32, i32 }"
_HTTP_SERVER = "cl_http_compiled_serve"  # apps/http/compiled.h
_BATCHING = "{ i32, i32, i32, i32, i32 }"
_TYPES = f"{{ i32, [{lib.CL_UDP_TYPES} x i32], ptr, ptr }}"


class Entry(NamedTuple):
    """What of C belongs to a piece of work. symbol: of its entry. classify: of its classifier, ""; if it has none."""

    work: Work
    symbol: str
    classify: str


class _States:
    """The states of all entries as variables: one for each array, whoever shares it."""

    def __init__(self) -> None:
        self._known: list[tuple[int, int, str]] = []  # begin, end, name
        self.lines: list[str] = []

    def name_of(self, work: Work) -> str:
        """The variable that holds its state, or the addresses of a job's arrays; or null."""
        if not work.args:
            return self._array(work, work.state)
        name = f"@cl_args_{len(self.lines)}"
        each = ", ".join(f"ptr {self._array(work, array)}" for array in work.args)
        self.lines.append(f"{name} = internal constant [{len(work.args)} x ptr] [{each}]")
        return name

    def _array(self, work: Work, array: Any) -> str:
        if array is None or not array.nbytes:
            return "null"
        begin = int(array.ctypes.data)
        end = begin + int(array.nbytes)
        for known_begin, known_end, name in self._known:
            if (begin, end) == (known_begin, known_end):
                return name
            if begin < known_end and known_begin < end:
                why = "its state is a part of another one's"
                raise CorelaneError(f"compile {work.name} ahead of time", why, "give both of them the whole array")
        name = f"@cl_state_{len(self._known)}"
        self._known.append((begin, end, name))
        self.lines.append(f"{name} = internal global {_bytes(work, array)}, align 64")
        return name


def _bytes(work: Work, array: Any) -> str:
    raw = array.tobytes()
    kind = f"[{len(raw)} x i8]"
    if not any(raw):
        return f"{kind} zeroinitializer"
    if len(raw) > STATE_MOST:
        why = f"its state has {len(raw)} bytes that are not all 0, and would lie in the file"
        hint = "let it begin with zeros, and fill it when the service runs"
        raise CorelaneError(f"compile {work.name} ahead of time", why, hint)
    return f"{kind} {_escaped(raw)}"


def _escaped(raw: bytes) -> str:
    return 'c"' + "".join(f"\\{byte:02x}" for byte in raw) + '"'


def _text(name: str, text: str) -> str:
    raw = text.encode("utf-8", "surrogateescape") + b"\0"
    return f"{name} = private constant [{len(raw)} x i8] {_escaped(raw)}"


def table(entries: Sequence[Entry], *, name: str, level: str) -> str:
    """The text of the module. Raises CorelaneError for a state that cannot be laid out."""
    states = _States()
    rows: list[str] = []
    lines: list[str] = []
    for i, entry in enumerate(entries):
        work = entry.work
        lines += [f"declare hidden void @{entry.symbol}()", _text(f"@cl_name_{i}", work.name)]
        types = "null"
        if entry.classify:
            types = f"@cl_types_{i}"
            lines += [f"declare hidden void @{entry.classify}()", _types(types, entry)]
        http = "null"
        if work.http is not None:
            http = f"@cl_http_{i}"
            lines += _http(http, work.http)
        batching = "null"
        if work.batching is not None:
            batching = f"@cl_batching_{i}"
            lines.append(_batching(batching, work.batching))
        numbers = (work.kind, work.port, int(work.ordered), work.backlog, work.window, 0)
        row = [*(f"i32 {n}" for n in numbers), f"i64 {work.period_ns}", f"ptr @cl_name_{i}", f"ptr @{entry.symbol}"]
        row += [f"ptr {states.name_of(work)}", f"ptr {types}", f"ptr {http}", f"ptr {batching}"]
        rows.append(f"{_WORK} {{ {', '.join(row)} }}")
    lines += states.lines
    lines += [_text("@cl_version", version("corelane")), _text("@cl_cpu", level), _text("@cl_service_name", name)]
    lines.append(f"@cl_work = private constant [{len(rows)} x {_WORK}] [{', '.join(rows)}]")
    head = [f"i64 {lib.CL_SERVICE_MAGIC}", f"i32 {lib.CL_SERVICE_ABI}", f"i32 {len(rows)}"]
    head.append(f"i64 {_signed(lib.cl_service_layout())}")
    pointers = [f"ptr @{what}" for what in ("cl_version", "cl_cpu", "cl_service_name", "cl_work")]
    serves_http = any(entry.work.http for entry in entries)
    if serves_http:
        lines.append(f"declare i32 @{_HTTP_SERVER}(ptr, ptr, i16, ptr, ptr)")
    pointers.append(f"ptr @{_HTTP_SERVER}" if serves_http else "ptr null")
    lines.append(f"@corelane_service = constant {_SERVICE} {{ {', '.join([*head, *pointers])} }}")
    return "\n".join([*lines, ""])


def _types(name: str, entry: Entry) -> str:
    assert entry.work.types is not None
    targets: list[Any] = list(entry.work.types.targets_us)
    targets += [0] * (lib.CL_UDP_TYPES - len(targets))
    array = f"[{lib.CL_UDP_TYPES} x i32] [{', '.join(f'i32 {us}' for us in targets)}]"
    fields = f"i32 {len(entry.work.types.targets_us)}, {array}, ptr @{entry.classify}, ptr null"
    return f"{name} = private constant {_TYPES} {{ {fields} }}"


def _batching(name: str, how: Batching) -> str:
    given = as_c(how)
    numbers = (given.batch, given.limit_us, given.wait_us, given.queue, given.flags)
    return f"{name} = private constant {_BATCHING} {{ {', '.join(f'i32 {n}' for n in numbers)} }}"


def _http(name: str, http: Http) -> list[str]:
    fields = f"ptr {name}_path, ptr {name}_type, i64 {http.room}, i32 {http.methods}, i32 0"
    table = f"{name} = private constant {_HTTP} {{ {fields} }}"
    return [_text(f"{name}_path", http.path), _text(f"{name}_type", http.type), table]


def _signed(word: int) -> int:
    return word - (1 << 64) if word >= 1 << 63 else word
