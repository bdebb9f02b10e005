"""A flame graph of slow requests against ordinary ones, as a page that needs nothing beside it.

A box is a function, above it what it called. It is as wide as the time that it takes in a slow request, on average; the
more of that it does not take in an ordinary one, the redder it is. What is drawn is there as a table, too.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ...bench.harness.report.markup import Html, Numbered, el, table
from ...bench.harness.report.page import Section, page
from ...libos.trace.profile import Profile

WIDTH, ROW = 1160.0, 18
LEAST_PX = 0.5  # narrower boxes are not drawn
CHARACTER_PX = 7.0
ROWS_OF_TABLE = 40


@dataclass
class Node:
    """A function in a place of the tree: us of a slow and of an ordinary request, with what it calls."""

    name: str
    slow_us: float = 0.0
    ordinary_us: float = 0.0
    calls: dict[str, Node] = field(default_factory=dict)

    @property
    def more(self) -> float:
        """The part of its time that an ordinary request does not have: 0 to 1."""
        return max(1 - self.ordinary_us / self.slow_us, 0.0) if self.slow_us > 0 else 0.0

    @property
    def depth(self) -> int:
        return 1 + max((node.depth for node in self.calls.values()), default=0)


def tree(profile: Profile) -> Node:
    """All stacks as one tree."""
    root = Node("all")
    for part, is_slow in ((profile.slow, True), (profile.ordinary, False)):
        for stack, us in part.us.items():
            node = root
            for name in ("", *stack):
                node = node.calls.setdefault(name, Node(name)) if name else node
                node.slow_us += us * is_slow
                node.ordinary_us += us * (not is_slow)
    return root


@dataclass(frozen=True)
class Box:
    """Where a node is drawn, in pixels; row 0 is the lowest."""

    node: Node
    left: float
    width: float
    row: int


def boxes(node: Node, left: float = 0.0, width: float = WIDTH, row: int = 0) -> Iterator[Box]:
    """Those of a tree that are wide enough to be seen. What a function calls lies within it, most time first."""
    if width < LEAST_PX:
        return
    yield Box(node, left, width, row)
    for called in sorted(node.calls.values(), key=lambda one: (-one.slow_us, one.name)):
        part = width * called.slow_us / node.slow_us if node.slow_us else 0.0
        yield from boxes(called, left, part, row + 1)
        left += part


def drawn(profile: Profile) -> Html:
    """The graph as SVG, for who sees; the table is for all."""
    root = tree(profile)
    height = root.depth * ROW
    shapes = [_shape(box, height) for box in boxes(root)]
    title = f"Time of a slow request of {profile.service} by function; red is what ordinary ones do not have"
    return el(
        "svg", el("title", title), shapes,
        viewBox=f"0 0 {WIDTH:g} {height}", width="100%", role="img", font_family="monospace", font_size="11",
    )  # fmt: skip


def _shape(box: Box, height: int) -> Html:
    node, top = box.node, height - (box.row + 1) * ROW
    told = f"{node.name}: {node.slow_us:.1f} us of a slow request, {node.ordinary_us:.1f} us of an ordinary one"
    red = {"fill": "#c62828", "fill_opacity": f"{0.15 + 0.65 * node.more:.2f}"}
    parts = [el("title", told), el("rect", x=f"{box.left:.2f}", y=top, width=f"{box.width:.2f}", height=ROW - 1, **red)]
    room = int((box.width - 6) / CHARACTER_PX)
    if room >= 3:
        text = node.name if len(node.name) <= room else node.name[: room - 1] + "\u2026"
        parts.append(el("text", text, x=f"{box.left + 3:.2f}", y=top + 13, fill="currentColor"))
    return el("g", parts)


def page_of(profiles: Sequence[Profile], title: str) -> str:
    """The page: a graph and a table for each service."""
    ids = Numbered()
    sections = [Section(f"service-{i}", one.service, _section(one, ids)) for i, one in enumerate(profiles, 1)]
    lead = [el("p", "What their kthreads ran while slow requests were under way, against ordinary ones.")]
    return page(title, lead, sections)


def _section(profile: Profile, ids: Numbered) -> list[Html]:
    slow, ordinary = profile.slow, profile.ordinary
    told = (
        f"n = {slow.n:,} requests of {profile.value_us:.1f} us or more ({slow.samples:,} samples) against "
        f"{ordinary.n:,} others ({ordinary.samples:,}). Width: us of CPU time in a slow request, on average "
        f"({slow.total_us:.1f} in all); red: what an ordinary one does not have."
    )
    rows = [
        (box.node.name, box.row, f"{box.node.slow_us:.1f}", f"{box.node.ordinary_us:.1f}", f"{box.node.more:.0%}")
        for box in sorted(boxes(tree(profile)), key=lambda box: -box.node.slow_us)[:ROWS_OF_TABLE]
    ]
    head = ("function", "depth", "slow (us)", "ordinary (us)", "more")
    if not slow.samples:
        return [el("p", told), el("p", "No plot: nothing was sampled while one of the slow ones was under way.")]
    caption = f"Functions of {profile.service} with what they call"
    return [el("p", told), drawn(profile), table(ids, caption, head, rows)]
