"""What is behind a probe: polling the flag, and how much fuel to give out until the next poll.

Estimates are bad where memory is slow, so they are corrected while running: each place that refills has a cell of
`@clp.sites` with the fuel that it gives out. Now and then the time stamp counter says how long that lasted, and the
cell is adjusted towards TARGET_US; for a part of it in proportion, unless that is less than a quarter. Only how often a
probe polls depends on it, never a result. Threads that run the same code share the cells: loads and stores are
monotonic, and a lost update is one correction less.

Only now and then, since reading the counter waits for the loads before it: 50 to 90 ns among loads that miss, once a
microsecond. While what a cell gives lasts for half to twice as long as it should, it is timed once in UNTIMED_MOST.
Most polls therefore are those of `clp.poll`: the flag, the count of polls that are not timed, and the cell's fuel.
"""

from __future__ import annotations

from dataclasses import dataclass

TARGET_US = 0.9
RAISE = 4  # a short interval grows by 1 in 16: slowly, since turns that are cheap now may become dear again
FIRST_FUEL = 1024  # of a site's first interval: a tenth of a microsecond or so, until it was measured
LEAST_FUEL, MOST_FUEL = 16, 1 << 22
UNTIMED_MOST = 63  # polls in a row that are not timed, behind a cell that keeps to its time; 2^n - 1

# What a function with loops keeps in its frame, `%clp.last`, in words. STAMP: when the interval that is timed began, or
# 0. GIVER: the cell it got its fuel from. SITE: the cell to take from now. FUEL: what is left; a count that ran out may
# be negative. RAX, RCX: the caller's, during a poll. UNTIMED: polls to come that are not timed.
STAMP, GIVER, SITE, FUEL, RAX, RCX, UNTIMED, WORDS = range(8)

# Without weights the register allocator takes what is between strips for as hot as the strips.
UNLIKELY, LIKELY, RARE, USUAL = (f"!prof !99000{n}" for n in (1, 2, 3, 4))
_WEIGHTS = {UNLIKELY: (1, 100_000), LIKELY: (1000, 1), RARE: (1, 32), USUAL: (32, 1)}


@dataclass(frozen=True)
class Target:
    """What probes poll and call.

    word_offset: of the pointer to the word, from the thread pointer (a thread-local in the initial-exec model). slow:
    the C function `void (void)` for a word that is not 0. ticks_per_us: of the time stamp counter. always: act as if
    the word were never 0, for measuring when probes poll. word: its address, for naive probes only. pad, align: for
    measuring what the place of code does (batch_probes.place); pad -1: wherever it comes to lie. linked: the code is
    for other processes and machines, whose linker knows where the word lies, and whose C library how fast the counter
    runs (WORD, RATE); word_offset and ticks_per_us are not used then.
    """

    word_offset: int
    slow: str
    ticks_per_us: float
    always: bool = False
    word: int = 0
    pad: int = -1
    align: bool = False
    linked: bool = False


WORD, RATE = "cl_probe_word_self", "cl_probe_ticks_per_us"  # of corelane/libos/probe.h


def weights() -> list[str]:
    """Definitions of UNLIKELY, LIKELY, RARE and USUAL, at the end of a module."""
    return [f'{name[6:]} = !{{!"branch_weights", i32 {a}, i32 {b}}}' for name, (a, b) in _WEIGHTS.items()]


def cells(sites: int) -> str:
    """The fuel that each place gives out, and how many polls behind it are not timed."""
    n = max(sites, 1)
    return f"@clp.sites = internal global [{2 * n} x i64] [{', '.join([f'i64 {FIRST_FUEL}, i64 0'] * n)}]"


def cell(site: int) -> str:
    """A pointer to the fuel of a place."""
    return f"getelementptr inbounds (i64, ptr @clp.sites, i64 {2 * site})"


def word(frame: str, number: int, into: str) -> str:
    """The line that makes `into` a pointer to a word of `%clp.last`, which `frame` points to."""
    return f"  {into} = getelementptr inbounds i64, ptr {frame}, i64 {number}"


def _address(symbol: str, target: Target) -> str:
    """Load the address of something in this object into rcx. numba's loader may put it anywhere."""
    return f"leaq {symbol}(%rip), %rcx" if target.linked else f"movabsq $${symbol}, %rcx"


def look(target: Target, site: int, saved: str) -> str:
    """Poll the flag, and put fuel into `%clp.last`. saved: a pointer to its word RAX. What changes no register:
    see call_ceded."""
    text = "\\0A".join(
        (
            "movq %rax, $0",
            "leaq $1, %rax",
            f"movq %rcx, {8 * RCX}(%rax)",
            _address(f"clp.sites+{16 * site}", target),
            "callq clp.poll",
            f"movq {8 * RCX}(%rax), %rcx",
            "movq $0, %rax",
        )
    )
    return (
        f'  call void asm sideeffect "{text}", "=*m,*m,~{{memory}},~{{dirflag}},~{{fpsr}},~{{flags}}"'
        f"(ptr elementtype(i64) {saved}, ptr elementtype([{WORDS} x i64]) %clp.last)"
    )


def call_ceded(function: str, argument: str, *, keeps_vectors: bool) -> str:
    """Call `preserve_allcc void (ptr)` without a trace in the caller's general registers.

    An ordinary call wants its arguments in certain registers, and loses rax and r11 even so. Then LLVM keeps what loops
    need out of those, and rbp and r13 come to hold the bases of addresses; with them an address takes a displacement,
    and a lea of three parts is slow (12 % of a matrix product in blocks). The caller must be `noredzone`.
    keeps_vectors: the function leaves vector registers alone; preserve_allcc alone does not mean all of AVX-512's.
    """
    text = "pushq $1\\0Apushq $0\\0Acallq clp.aside\\0Aleaq 16(%rsp), %rsp"
    lost = [] if keeps_vectors else [*(f"xmm{n}" for n in range(32)), *(f"k{n}" for n in range(8))]
    clobbers = ",".join(f"~{{{name}}}" for name in (*lost, "memory", "dirflag", "fpsr", "flags"))
    return f'  call void asm sideeffect "{text}", "r,r,{clobbers}"(ptr {function}, ptr {argument})'


# What call_ceded calls: behind the return address lie the function and its argument. What a preserve_allcc function
# does not save is saved here, and the stack aligned for it.
_ASIDE = (
    "pushq %rbp",
    "movq %rsp, %rbp",
    *(f"pushq %{name}" for name in ("rax", "rdi", "r11")),
    "movq 16(%rbp), %rax",
    "movq 24(%rbp), %rdi",
    "andq $$-16, %rsp",
    "callq *%rax",
    "leaq -24(%rbp), %rsp",
    *(f"popq %{name}" for name in ("r11", "rdi", "rax", "rbp")),
    "retq",
)

_VOLATILE = ("rax", "rcx", "rdx", "rsi", "rdi", "r8", "r9", "r10", "r11")
_XSAVE_BYTES = 2688  # legacy area, header, and the components of _VECTORS in the standard format (Intel SDM 1, 13.4)
_VECTORS = 0xE6  # XCR0's bits of SSE, AVX and AVX-512


def _slow(target: Target) -> tuple[str, ...]:
    """Call a C function that may change every vector register, and leave them all as they were. By xsave: LLVM's
    preserve_allcc knows sixteen ymm registers, and clears their upper halves when it returns."""
    called: tuple[str, ...] = (f"movabsq $${target.slow}, %rax", "callq *%rax")
    if target.linked:
        called = (f"callq *{target.slow}@GOTPCREL(%rip)",)
    mask = (f"movl $${_VECTORS}, %eax", "xorl %edx, %edx")
    return (
        "pushq %rbp",
        "movq %rsp, %rbp",
        *(f"pushq %{name}" for name in _VOLATILE),
        f"subq $${_XSAVE_BYTES}, %rsp",
        "andq $$-64, %rsp",
        "xorl %eax, %eax",
        *(f"movq %rax, {at}(%rsp)" for at in range(512, 576, 8)),  # xrstor wants the header's rest to be 0
        *mask,
        "xsave64 (%rsp)",
        *called,
        *mask,
        "xrstor64 (%rsp)",
        f"leaq -{8 * len(_VOLATILE)}(%rbp), %rsp",
        *(f"popq %{name}" for name in (*reversed(_VOLATILE), "rbp")),
        "retq",
    )


def _look(target: Target) -> tuple[str, ...]:
    """Called with rax the frame's words and rcx the cell; changes rcx. A poll that finds nothing and is not timed ends
    here, in a few instructions: loops that wait for memory pay for each of them."""
    load: tuple[str, ...] = (f"movq %fs:{target.word_offset}, %rcx",)
    if target.linked:
        load = (f"movq {WORD}@GOTTPOFF(%rip), %rcx", "movq %fs:(%rcx), %rcx")
    nothing = (*load, "cmpq $$0, (%rcx)", "jne 1f")
    return (
        f"movq %rcx, {8 * SITE}(%rax)",
        f"decq {8 * UNTIMED}(%rax)",
        "js 1f",
        *(("jmp 1f",) if target.always else nothing),
        f"movq {8 * SITE}(%rax), %rcx",
        "movq (%rcx), %rcx",
        f"movq %rcx, {8 * FUEL}(%rax)",
        "retq",
        "1: pushq %rax",
        _address("clp.refill", target),
        "pushq %rcx",
        "callq clp.aside",
        "leaq 16(%rsp), %rsp",
        "retq",
    )


def _naked(header: str, lines: tuple[str, ...]) -> str:
    text = "\\0A".join(lines)
    return f'{header} {{\n  call void asm sideeffect "{text}", ""()\n  unreachable\n}}\n'


def load_word_address(target: Target, into: str, pointer: str, at: str) -> list[str]:
    """Lines that load the address of the word. pointer, at: names for what is on the way."""
    if target.linked:
        return [f"  {into} = load atomic ptr, ptr @{WORD} monotonic, align 8"]
    return [
        f"  {pointer} = call ptr @llvm.thread.pointer.p0()",
        f"  {at} = getelementptr i8, ptr {pointer}, i64 {target.word_offset}",
        f"  {into} = load atomic ptr, ptr {at} monotonic, align 8",
    ]


def _ticks(target: Target) -> str:
    """Lines that make %ticks the length of an interval, and %sixth and %half parts of it."""
    rate = f"or i64 {int(TARGET_US * target.ticks_per_us)}, 0"
    loaded = ""
    if target.linked:
        loaded = f"  %rate = load atomic i64, ptr @{RATE} monotonic, align 8\n"
        loaded += f"  %scaled_rate = mul i64 %rate, {int(TARGET_US * 1000)}\n"
        rate = "udiv i64 %scaled_rate, 1000"
    return f"{loaded}  %ticks = {rate}\n  %sixth = udiv i64 %ticks, 6\n  %half = lshr i64 %ticks, 1"


def functions(target: Target) -> str:
    """The functions behind the probes. preserve_allcc: the callers' registers are left alone, vectors above all."""
    wanted = "or i64 %seen, 1" if target.always else "or i64 %seen, 0"
    aside = _naked("define internal void @clp.aside() naked noinline nounwind", _ASIDE)
    slow = _naked("define internal preserve_allcc void @clp.slow() naked noinline cold nounwind", _slow(target))
    word_at = "\n".join(load_word_address(target, "%word", "%tp", "%pointer"))
    look = _naked("define internal void @clp.poll() naked noinline nounwind", _look(target))
    return f"""
{aside}
{slow}
{look}
define internal preserve_allcc void @clp.refill(ptr %last) noinline cold nounwind {{
entry:
{word("%last", SITE, "%site_at")}
{word("%last", GIVER, "%giver_at")}
{word("%last", FUEL, "%fuel_at")}
{word("%last", UNTIMED, "%untimed_at")}
  %site = load ptr, ptr %site_at, align 8
  %untimed = load i64, ptr %untimed_at, align 8
  %timed = icmp slt i64 %untimed, 0
{word_at}
  %seen = load atomic i64, ptr %word monotonic, align 8
  %wanted = {wanted}
  %look = icmp ne i64 %wanted, 0
  br i1 %timed, label %stamp, label %stamped
stamp:
  %before = call i64 @llvm.readcyclecounter()
  br label %stamped
stamped:
  %now = phi i64 [ 0, %entry ], [ %before, %stamp ]
  br i1 %look, label %slow, label %looked, {UNLIKELY}
slow:
  call preserve_allcc void @clp.slow()
  br label %looked
looked:
  br i1 %timed, label %judge, label %give
judge:
  %then = load i64, ptr %last, align 8
  %unknown = icmp eq i64 %then, 0
  br i1 %unknown, label %again, label %known
known:
  %giver = load ptr, ptr %giver_at, align 8
  %gave = load atomic i64, ptr %giver monotonic, align 8
  %left = load i64, ptr %fuel_at, align 8
  %spent = sub i64 %gave, %left
  %used = call i64 @llvm.smax.i64(i64 %spent, i64 0)
  %quarter = lshr i64 %gave, 2
  %little = icmp ult i64 %used, %quarter
  br i1 %little, label %again, label %scale
scale:
  %lasted = sub i64 %now, %then
  %some = call i64 @llvm.umax.i64(i64 %used, i64 1)
  %product = mul i64 %lasted, %gave
  %took = udiv i64 %product, %some
{_ticks(target)}
  %above_it = add i64 %ticks, %sixth
  %below_it = sub i64 %ticks, %sixth
  %long = icmp ugt i64 %took, %above_it
  br i1 %long, label %less, label %perhaps
less:
  %scaled = mul i64 %gave, %ticks
  %exact = udiv i64 %scaled, %took
  %eighth = lshr i64 %gave, 3
  %lower = call i64 @llvm.umax.i64(i64 %exact, i64 %eighth)
  %floor = call i64 @llvm.umax.i64(i64 %lower, i64 {LEAST_FUEL})
  br label %set
perhaps:
  %short = icmp ult i64 %took, %below_it
  br i1 %short, label %more, label %keep
more:
  %part = lshr i64 %gave, {RAISE}
  %higher = add i64 %gave, %part
  %ceiling = call i64 @llvm.umin.i64(i64 %higher, i64 {MOST_FUEL})
  br label %set
set:
  %new = phi i64 [ %floor, %less ], [ %ceiling, %more ]
  store atomic i64 %new, ptr %giver monotonic, align 8
  br label %keep
keep:
  %calm_at = getelementptr i8, ptr %giver, i64 8
  %calm = load atomic i64, ptr %calm_at monotonic, align 8
  %twice = shl i64 %calm, 1
  %longer = or i64 %twice, 1
  %most = and i64 %longer, {UNTIMED_MOST}
  %above = sub i64 %took, %half
  %twice_it = shl i64 %ticks, 1
  %width = sub i64 %twice_it, %half
  %near = icmp ult i64 %above, %width
  %wait = select i1 %near, i64 %most, i64 0
  store atomic i64 %wait, ptr %calm_at monotonic, align 8
  br i1 %near, label %rest_a_while, label %again
rest_a_while:
  store i64 0, ptr %last, align 8
  store i64 %wait, ptr %untimed_at, align 8
  br label %give
again:
  %from = call i64 @llvm.readcyclecounter()
  store i64 %from, ptr %last, align 8
  store ptr %site, ptr %giver_at, align 8
  store i64 0, ptr %untimed_at, align 8
  br label %give
give:
  %fuel = load atomic i64, ptr %site monotonic, align 8
  store i64 %fuel, ptr %fuel_at, align 8
  ret void
}}
"""


def externals(target: Target) -> list[str]:
    """Variables of the C library that the code refers to by name, and a list of what only assembly refers to."""
    if not target.linked:
        return []
    used = ", ".join(f"ptr @clp.{name}" for name in ("aside", "poll", "refill", "sites"))
    return [
        f"@{WORD} = external thread_local(initialexec) global ptr",
        f"@{RATE} = external global i64",
        f'@llvm.compiler.used = appending global [4 x ptr] [{used}], section "llvm.metadata"',
    ]


DECLARED = {
    "ptr @llvm.thread.pointer.p0()": "llvm.thread.pointer.p0",
    "i64 @llvm.readcyclecounter()": "llvm.readcyclecounter",
    "i64 @llvm.umax.i64(i64, i64)": "llvm.umax.i64",
    "i64 @llvm.umin.i64(i64, i64)": "llvm.umin.i64",
    "i64 @llvm.smax.i64(i64, i64)": "llvm.smax.i64",
    "i64 @llvm.usub.sat.i64(i64, i64)": "llvm.usub.sat.i64",
    "i64 @llvm.ctlz.i64(i64, i1 immarg)": "llvm.ctlz.i64",
}
