"""LLVM's text of a module as functions and blocks that can be changed: what probes.py stands on.

llvmlite reads modules but cannot change them, so this reads the text that LLVM prints and writes it again. Only what
finding loops needs is understood: labels, phis, terminators; every other line stays as it is.

Invariants
    Values and blocks without a name (%7) get one at parsing (%u7): LLVM insists that numbers appear in order, and lines
    are inserted.
    A block's `succ` is what its terminator says; phis name each predecessor once.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from llvmlite import binding as llvm

NAME = r'%(?:"[^"]*"|[-\w.$]+)'
_LABEL = re.compile(r'^("[^"]*"|[-\w.$]+):')
_INCOMING = re.compile(rf"\[ (.*?), ({NAME}) \]")
_TARGET = re.compile(rf"label ({NAME})")
_NUMBERED = re.compile(r"%(\d+)\b")
_PHI = re.compile(rf"^\s*({NAME}) = phi (.*?) (\[ .*)$")
_TERMINATORS = ("br ", "switch ", "ret ", "unreachable", "indirectbr ", "resume ", "invoke ", "callbr ")


@dataclass
class Phi:
    """`name = phi kind [value, block]...`; incoming maps a block's name to the value."""

    name: str
    kind: str
    incoming: dict[str, str]

    def text(self, edges: Callable[[str], int]) -> str:
        """As LLVM reads it: once for each edge, and a switch may have several from one block."""
        pairs = ", ".join(f"[ {v}, {b} ]" for b, v in self.incoming.items() for _ in range(edges(b)))
        return f"  {self.name} = phi {self.kind} {pairs}"


@dataclass
class Block:
    """A basic block. name: with its %. lines: all between the phis and the terminator."""

    name: str
    phis: list[Phi] = field(default_factory=list)
    lines: list[str] = field(default_factory=list)
    terminator: str = ""

    @property
    def succ(self) -> list[str]:
        return list(dict.fromkeys(_TARGET.findall(self.terminator)))

    def retarget(self, old: str, new: str) -> None:
        """Let the terminator go to `new` instead of `old`. The phis there are the caller's."""
        self.terminator = _TARGET.sub(lambda m: f"label {new}" if m[1] == old else m[0], self.terminator)


@dataclass
class Function:
    """A definition. header: its first line."""

    header: str
    blocks: dict[str, Block]

    @property
    def name(self) -> str:
        found = re.search(r'@("[^"]*"|[-\w.$]+)\(', self.header)
        assert found, self.header
        return found[1]

    @property
    def entry(self) -> Block:
        return next(iter(self.blocks.values()))

    def predecessors(self) -> dict[str, list[str]]:
        pred: dict[str, list[str]] = {name: [] for name in self.blocks}
        for block in self.blocks.values():
            for to in block.succ:
                pred[to].append(block.name)
        return pred

    @staticmethod
    def _sources(block: Block) -> set[str]:
        return {source for phi in block.phis for source in phi.incoming}

    def __str__(self) -> str:
        out = [self.header]
        for block in self.blocks.values():
            out.append(f"{block.name[1:]}:")
            edges = {b: _TARGET.findall(self.blocks[b].terminator).count(block.name) for b in self._sources(block)}
            out.extend(phi.text(edges.__getitem__) for phi in block.phis)
            out.extend(block.lines)
            out.append(block.terminator)
        return "\n".join([*out, "}"])


@dataclass
class Module:
    """Text between definitions, and definitions, in order."""

    parts: list[str | Function]

    def functions(self) -> Iterator[Function]:
        return (part for part in self.parts if isinstance(part, Function))

    def __str__(self) -> str:
        return "\n".join(str(part) for part in self.parts) + "\n"


def _parse_block(name: str, body: list[str]) -> Block:
    block = Block(name)
    for at, line in enumerate(body):
        if found := _PHI.match(line):
            block.phis.append(Phi(found[1], found[2], {b: v for v, b in _INCOMING.findall(found[3])}))
        elif line.lstrip().startswith(_TERMINATORS):
            block.terminator = "\n".join(body[at:])  # a switch has several lines
            return block
        else:
            block.lines.append(line)
    raise ValueError(f"block {name} has no terminator")


def _parse_function(header: str, body: list[str]) -> Function:
    numbers = [int(n) for n in _NUMBERED.findall(header)]
    names = [f"%u{max(numbers) + 1 if numbers else 0}"]
    bodies: list[list[str]] = [[]]
    for raw in body:
        line = _NUMBERED.sub(r"%u\1", raw)
        if found := _LABEL.match(line):
            label = f"%u{found[1]}" if found[1].isdigit() else f"%{found[1]}"
            if len(names) == 1 and not bodies[0]:
                names[0] = label
            else:
                names.append(label)
                bodies.append([])
        elif line.strip():
            bodies[-1].append(line)
    header = _NUMBERED.sub(r"%u\1", header)
    return Function(header, {name: _parse_block(name, lines) for name, lines in zip(names, bodies, strict=True)})


def parse(text: str) -> Module:
    """A module's text, as `str(llvmlite.binding.ModuleRef)` gives it."""
    parts: list[str | Function] = []
    between: list[str] = []
    lines = iter(text.splitlines())
    for line in lines:
        if not line.startswith("define "):
            between.append(line)
            continue
        parts.append("\n".join(between))
        between = []
        body = []
        for inner in lines:
            if inner == "}":
                break
            body.append(inner)
        parts.append(_parse_function(line, body))
    parts.append("\n".join(between))
    return Module(parts)


@dataclass
class Loop:
    """A natural loop. header: block names; latches: those that jump back to it."""

    header: str
    latches: list[str]
    blocks: set[str]
    parent: Loop | None = None
    children: list[Loop] = field(default_factory=list)

    def own(self) -> set[str]:
        """Its blocks that are in no loop within it."""
        return self.blocks - {b for child in self.children for b in child.blocks}


def _postorder(function: Function) -> list[str]:
    seen, out = {function.entry.name}, []
    stack = [(function.entry.name, iter(function.entry.succ))]
    while stack:
        name, rest = stack[-1]
        for to in rest:
            if to not in seen:
                seen.add(to)
                stack.append((to, iter(function.blocks[to].succ)))
                break
        else:
            out.append(name)
            stack.pop()
    return out


def dominators(function: Function) -> dict[str, str]:
    """Immediate dominator of each block that can be reached (Cooper, Harvey, Kennedy 2001); the entry's is itself."""
    order = _postorder(function)
    number = {name: at for at, name in enumerate(order)}
    pred = function.predecessors()
    entry = function.entry.name
    idom = {entry: entry}

    def meet(a: str, b: str) -> str:
        while a != b:
            while number[a] < number[b]:
                a = idom[a]
            while number[b] < number[a]:
                b = idom[b]
        return a

    changed = True
    while changed:
        changed = False
        for name in reversed(order[:-1]):
            known = [p for p in pred[name] if p in idom]
            new = known[0]
            for other in known[1:]:
                new = meet(new, other)
            if idom.get(name) != new:
                idom[name], changed = new, True
    return idom


def dominates(idom: dict[str, str], a: str, b: str) -> bool:
    """Whether every way to b goes through a."""
    while b != a:
        if idom[b] == b:
            return False
        b = idom[b]
    return True


def _body(pred: dict[str, list[str]], header: str, latches: Iterable[str]) -> set[str]:
    found, todo = {header}, list(latches)
    while todo:
        name = todo.pop()
        if name not in found:
            found.add(name)
            todo.extend(pred[name])
    return found


def loops(function: Function, idom: dict[str, str]) -> tuple[list[Loop], list[tuple[str, str]]]:
    """Natural loops, inner ones before those around them; and the edges that go back into the middle of a cycle
    (irreducible: LLVM hardly makes them)."""
    place = {name: at for at, name in enumerate(reversed(_postorder(function)))}
    latches: dict[str, list[str]] = {}
    odd = []
    for name in place:
        for to in function.blocks[name].succ:
            if dominates(idom, to, name):
                latches.setdefault(to, []).append(name)
            elif place[to] <= place[name]:
                odd.append((name, to))
    pred = {name: [p for p in ps if p in idom] for name, ps in function.predecessors().items()}
    found = [Loop(header, tails, _body(pred, header, tails)) for header, tails in latches.items()]
    found.sort(key=lambda loop: len(loop.blocks))
    for at, loop in enumerate(found):
        loop.parent = next((outer for outer in found[at + 1 :] if loop.header in outer.blocks), None)
        if loop.parent:
            loop.parent.children.append(loop)
    return found, odd


def split_edge(function: Function, a: str, b: str, new: Block) -> None:
    """Put `new`, whose terminator goes on to b, between a and b."""
    function.blocks[a].retarget(b, new.name)
    for phi in function.blocks[b].phis:
        phi.incoming[new.name] = phi.incoming.pop(a)
    function.blocks[new.name] = new


def also_from(function: Function, b: str, like: str, new: str) -> None:
    """Block `new` goes to b too, with the values that come from `like`."""
    for phi in function.blocks[b].phis:
        phi.incoming[new] = phi.incoming[like]


def preheader(function: Function, loop: Loop, fresh: Callable[[str], str]) -> Block:
    """The one block outside a loop that goes to its header, and nowhere else; made if there is none."""
    header = function.blocks[loop.header]
    outside = [p for p in function.predecessors()[loop.header] if p not in loop.blocks]
    if len(outside) == 1 and len(function.blocks[outside[0]].succ) == 1:
        return function.blocks[outside[0]]
    made = Block(fresh("ph"), terminator=f"  br label {loop.header}")
    for phi in header.phis:
        merged = Phi(fresh("v"), phi.kind, {p: phi.incoming.pop(p) for p in outside})
        made.phis.append(merged)
        phi.incoming[made.name] = merged.name
    for name in outside:
        function.blocks[name].retarget(loop.header, made.name)
    function.blocks[made.name] = made
    around = loop.parent
    while around:
        around.blocks.add(made.name)
        around = around.parent
    return made


def definitions(function: Function) -> dict[str, tuple[str, str]]:
    """Where values come from: name -> (block, line). Phis with their block and ''; arguments are not in it."""
    out = {}
    for block in function.blocks.values():
        for phi in block.phis:
            out[phi.name] = (block.name, "")
        for line in block.lines:
            if found := re.match(rf"\s*({NAME}) = (.*)", line):
                out[found[1]] = (block.name, found[2])
    return out


def types_of(text: str) -> dict[str, dict[str, str]]:
    """LLVM types of arguments and instructions, by function and by name. The text has no numbered values."""
    out = {}
    for function in llvm.parse_assembly(text).functions:
        kinds = {value.name: str(value.type) for value in function.arguments}
        for block in function.blocks:
            kinds |= {value.name: str(value.type) for value in block.instructions if value.name}
        out[function.name] = {_quoted(name): kind for name, kind in kinds.items()}
    return out


def _quoted(name: str) -> str:
    """A value's name as LLVM prints it (printLLVMName in lib/IR/AsmWriter.cpp): numba's `$` stands in quotes."""
    if re.fullmatch(r"[-._a-zA-Z][-._a-zA-Z0-9]*", name):
        return f"%{name}"
    shown = (chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in name.encode())
    return f'%"{"".join(shown)}"'
