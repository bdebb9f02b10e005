"""Every interleaving of small programs on a machine with store buffers (x86-TSO) and futexes.

A program is a list of instructions, each one memory access, fence or system call; strings in it are labels. Registers
are a thread's own; `"$r"` stands for register r where a value may.

    ("store", var, value)            into the thread's store buffer, from where it drains at any later time
    ("load", var, reg)               the thread's own latest store, else memory
    ("set", reg, value)  ("add", reg, value)
    ("if", reg, "==" or "!=", value, label)   ("goto", label)
    ("choose", label)                goes on or jumps: both are explored
    ("fence",)                       waits until the store buffer is empty, as locked instructions and system calls do
    ("exchange", var, value, reg)
    ("wait", var, value, ...)        futex: sleeps if memory[var] == value, of all that are given, compared and queued
                                     in one step
    ("wake", var)                    everybody who sleeps on it

A store buffer holds `depth` stores at most. Registers that will not be read any more are forgotten, which makes equal
what differs only by them. `explore` builds the whole graph of states; `Graph.never` gives the states from which no
state of a kind can be reached any more: a deadlock, or a live-lock however fair the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

DEAD = -1
Thread = tuple[int, tuple[tuple[str, int], ...], tuple[tuple[str, int], ...], str]
State = tuple[tuple[Thread, ...], tuple[tuple[str, int], ...]]
Program = Sequence[Any]


def assemble(program: Program) -> list[tuple[Any, ...]]:
    """Labels become positions."""
    at: dict[str, int] = {}
    flat: list[tuple[Any, ...]] = []
    for item in program:
        if isinstance(item, str):
            at[item] = len(flat)
        else:
            flat.append(item)
    jumps = {"if": 4, "goto": 1, "choose": 1}
    return [(*i[: jumps[i[0]]], at[i[jumps[i[0]]]]) if i[0] in jumps else i for i in flat]


def _reads(instruction: tuple[Any, ...]) -> set[str]:
    op, *args = instruction
    named = {a[1:] for a in args[1:] if isinstance(a, str) and a.startswith("$")}
    return named | ({args[0]} if op in ("if", "add") else set())


def _writes(instruction: tuple[Any, ...]) -> set[str]:
    op, *args = instruction
    at = {"load": 1, "set": 0, "add": 0, "exchange": 2}.get(op)
    return set() if at is None else {args[at]}


def liveness(program: list[tuple[Any, ...]]) -> list[frozenset[str]]:
    """For each position, and the end, the registers that may yet be read."""
    live: list[frozenset[str]] = [frozenset()] * (len(program) + 1)
    changed = True
    while changed:
        changed = False
        for pc in reversed(range(len(program))):
            op, *args = program[pc]
            after = ([] if op == "goto" else [pc + 1]) + ([args[-1]] if op in ("goto", "if", "choose") else [])
            out = frozenset().union(*(live[n] for n in after))
            now = frozenset((out - _writes(program[pc])) | _reads(program[pc]))
            changed |= now != live[pc]
            live[pc] = now
    return live


def without(program: Program, *instructions: Any) -> list[Any]:
    """The program without these, wherever they are in it. ValueError: one of them is not there."""
    missing = [i for i in instructions if i not in program]
    if missing:
        raise ValueError(f"the program has no {missing}")
    return [i for i in program if i not in instructions]


@dataclass(frozen=True)
class View:
    """A state, for predicates: memory as it is, each thread's position, what it sleeps on ("" if it does not)."""

    memory: Mapping[str, int]
    alive: tuple[bool, ...]
    asleep: tuple[str, ...]
    drained: bool


def view(state: State) -> View:
    threads, memory = state
    return View(
        dict(memory),
        tuple(t[0] != DEAD for t in threads),
        tuple(t[3] for t in threads),
        not any(t[2] for t in threads),
    )


@dataclass(frozen=True)
class _World:
    programs: list[list[tuple[Any, ...]]]
    live: list[list[frozenset[str]]]
    mortal: frozenset[int]
    depth: int


def _settle(world: _World, t: int, pc: int, registers: dict[str, int]) -> Iterator[tuple[int, dict[str, int]]]:
    """Go on through what touches only registers: nobody else can tell when it happens."""
    todo = [(pc, registers)]
    while todo:
        pc, registers = todo.pop()
        op, *args = world.programs[t][pc] if pc < len(world.programs[t]) else ("end",)
        if op == "set":
            todo.append((pc + 1, {**registers, args[0]: _value(args[1], registers)}))
        elif op == "add":
            todo.append((pc + 1, {**registers, args[0]: registers[args[0]] + _value(args[1], registers)}))
        elif op == "if":
            equal = registers[args[0]] == _value(args[2], registers)
            todo.append((args[3] if equal == (args[1] == "==") else pc + 1, registers))
        elif op == "goto":
            todo.append((args[0], registers))
        elif op == "choose":
            todo += [(pc + 1, registers), (args[0], registers)]
        else:
            yield pc, {r: v for r, v in registers.items() if r in world.live[t][pc]}


def _value(x: Any, registers: dict[str, int]) -> int:
    return registers[x[1:]] if isinstance(x, str) else int(x)


def _steps(state: State, world: _World) -> Iterator[State]:
    """Every state one step away: a shared access of a thread, a store leaving a buffer, a death."""
    threads, memory_items = state
    for t, (pc, register_items, buffer, asleep) in enumerate(threads):
        before, after = threads[:t], threads[t + 1 :]
        if buffer:
            (name, value), rest = buffer[0], buffer[1:]
            memory = tuple((k, value if k == name else v) for k, v in memory_items)
            yield (*before, (pc, register_items, rest, asleep), *after), memory
        if pc == DEAD or pc >= len(world.programs[t]):
            continue
        if t in world.mortal:
            yield (*before, (DEAD, (), buffer, ""), *after), memory_items  # what it stored still drains
        op = world.programs[t][pc][0]
        if asleep or (op == "store" and len(buffer) >= world.depth) or (op not in ("store", "load") and buffer):
            continue  # locked instructions and system calls wait until the buffer is empty
        registers, memory_now, wakes = dict(register_items), dict(memory_items), ""
        buffer, asleep, wakes = _access(world.programs[t][pc], registers, memory_now, buffer)
        others = [(*o[:3], "") if wakes and wakes in o[3].split() else o for o in threads]
        for new_pc, kept in _settle(world, t, pc + 1, registers):
            mine = (new_pc, tuple(sorted(kept.items())), buffer, asleep)
            yield (*others[:t], mine, *others[t + 1 :]), tuple(sorted(memory_now.items()))


def _access(
    instruction: tuple[Any, ...], registers: dict[str, int], memory: dict[str, int], buffer: Any
) -> tuple[Any, str, str]:
    """Carry out a shared access; changes registers and memory. Returns the buffer, what it sleeps on, whom it wakes."""
    op, *args = instruction
    if op == "store":
        return (*buffer, (args[0], _value(args[1], registers))), "", ""
    if op == "load":
        registers[args[1]] = dict([*memory.items(), *buffer])[args[0]]  # own stores are seen first
    elif op == "exchange":
        registers[args[2]] = memory[args[0]]
        memory[args[0]] = _value(args[1], registers)
    elif op == "wait":
        pairs = list(zip(args[::2], args[1::2], strict=True))
        queued = all(memory[var] == _value(value, registers) for var, value in pairs)
        return buffer, " ".join(var for var, _ in pairs) if queued else "", ""
    elif op == "wake":
        return buffer, "", args[0]
    elif op != "fence":
        raise ValueError(f"no instruction {op!r}")
    return buffer, "", ""


@dataclass
class Graph:
    """All states that can be reached, and which leads to which."""

    states: list[State]
    into: list[list[int]]  # predecessors

    def never(self, good: Callable[[View], bool]) -> list[View]:
        """States from which no good one can be reached."""
        todo = [i for i, s in enumerate(self.states) if good(view(s))]
        reaches = set(todo)
        while todo:
            for before in self.into[todo.pop()]:
                if before not in reaches:
                    reaches.add(before)
                    todo.append(before)
        return [view(s) for i, s in enumerate(self.states) if i not in reaches]


def explore(
    programs: Sequence[Program],
    memory: Mapping[str, int],
    *,
    mortal: Sequence[int] = (),
    depth: int = 1,
    limit: int = 2_000_000,
) -> Graph:
    """The graph of all states. mortal: threads that may be killed before any instruction. Raises ValueError beyond
    `limit` states."""
    flat = [assemble(p) for p in programs]
    world = _World(flat, [liveness(p) for p in flat], frozenset(mortal), depth)
    first = [next(_settle(world, t, 0, {})) for t in range(len(flat))]
    start: State = (tuple((pc, tuple(sorted(r.items())), (), "") for pc, r in first), tuple(sorted(memory.items())))
    number: dict[State, int] = {start: 0}
    states, into, todo = [start], [[]], [0]
    while todo:
        here = todo.pop()
        for new in _steps(states[here], world):
            at = number.get(new)
            if at is None:
                at = number[new] = len(states)
                states.append(new)
                into.append([])
                todo.append(at)
                if at > limit:
                    raise ValueError(f"more than {limit} states")
            into[at].append(here)
    return Graph(states, into)
