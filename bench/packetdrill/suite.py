"""Many scripts: each read, tried on a stack of its own, and judged.

Verdicts: passed; failed; deviates (it failed, and a comment of the script says that this stack does); unsupported (it
needs what the stack or the runner lacks); unreadable; late (the runner itself was late in every attempt: nothing is
said about the stack); broken (the runner has a fault of its own, and goes on with the next script). A time that is off
fails a stack that lives by the machine's clock only if it is off in every attempt.
"""

from __future__ import annotations

import contextlib
import re
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from ...runtime.errors import CorelaneError
from ...runtime.files import why_unreadable
from . import model as m
from . import run as runner
from .parse import parse
from .settings import Settings, settings
from .stack import Stack
from .tokens import NotSupported, ScriptError

Make = Callable[[Settings], Stack]
ATTEMPTS = 8


@dataclass(frozen=True)
class Verdict:
    """Of one script. line: 0 if it is about the whole. needs: what is lacking, with lines. log: what happened."""

    file: str
    status: str
    line: int = 0
    why: str = ""
    expected: str = ""
    came: str = ""
    needs: tuple[str, ...] = ()
    stack: str = ""
    attempts: int = 1
    seconds: float = 0.0
    log: tuple[str, ...] = ()

    def text(self) -> str:
        """For people: the first line has file, line and reason."""
        if self.status == "passed":
            return f"{self.file}: passed"
        out = [f"{self.file}:{self.line}: {self.status}: {self.why}" if self.line else f"{self.file}: {self.why}"]
        out += [f"    expected  {self.expected}"] if self.expected else []
        out += [f"    came      {self.came}"] if self.came else []
        out += [f"    needs     {need}" for need in self.needs]
        return "\n".join(out)

    def document(self) -> dict[str, object]:
        """For JSON."""
        return {name: value for name, value in asdict(self).items() if name != "log"}


def judge(
    path: Path,
    make: Make,
    least_tolerance_us: int = 0,
    defines: Mapping[str, str] | None = None,
    options: tuple[tuple[str, str], ...] = (),
) -> Verdict:
    """Read a script and run it, again if the runner was late. defines: as in parse(). options: behind the script's."""
    try:
        return _judge(path, make, least_tolerance_us, defines or {}, options)
    except CorelaneError:
        raise
    except Exception as error:
        why = f"the runner failed itself, please report it: {type(error).__name__}: {error}"
        return Verdict(str(path), "broken", 0, why, log=tuple(traceback.format_exc().splitlines()))


def _judge(
    path: Path, make: Make, least_tolerance_us: int, defines: Mapping[str, str], options: tuple[tuple[str, str], ...]
) -> Verdict:
    began = time.monotonic()
    try:
        source = path.read_text(encoding="utf-8")
        script = parse(source, defines)
        script = replace(script, options=script.options + options)
        chosen = settings(script, least_tolerance_us)
    except ScriptError as error:
        return Verdict(str(path), "unreadable", error.line, error.why)
    except NotSupported as lacks:
        return _unsupported(path, [(lacks.line, lacks.needs)])
    except (OSError, UnicodeDecodeError) as error:
        return Verdict(str(path), "unreadable", 0, why_unreadable(error))
    attempts, again = 0, True
    while again and attempts < ATTEMPTS:
        verdict, again = _attempt(path, script, make, chosen)
        attempts += 1
    if verdict.status == "failed" and _known(source, verdict.stack):
        verdict = replace(verdict, status="deviates")
    seconds = round(time.monotonic() - began, 3)
    return replace(verdict, attempts=attempts, seconds=seconds)


def _known(source: str, stack: str) -> bool:
    """Whether a comment says "// Linux deviates" of this stack."""
    return bool(stack) and re.search(rf"^\s*//\s*{re.escape(stack)} deviates\b", source, re.I | re.M) is not None


def _attempt(path: Path, script: m.Script, make: Make, chosen: Settings) -> tuple[Verdict, bool]:
    """A verdict, and whether another attempt may give another one: a time may be off by chance."""
    try:
        with contextlib.closing(make(chosen)) as stack:
            lacks = runner.needs(script, stack)
            if lacks:
                return _unsupported(path, lacks), False
            result = runner.run(script, stack, chosen)
    except NotSupported as error:  # also of a stack that is not to be had with these settings
        return _unsupported(path, [(error.line, error.needs)]), False
    failure, log = result.failure, tuple(result.log)
    if failure is None:
        return Verdict(str(path), "passed", log=log), False
    late = result.late_us > chosen.tolerance_us // 2
    why = f"{failure.why} (the runner was {result.late_us} us late)" if late else failure.why
    status = "late" if late else "failed"
    shown = (failure.line, why, failure.expected, failure.came)
    return Verdict(str(path), status, *shown, stack=stack.name, log=log), late or (failure.of_time and stack.real_time)


def _unsupported(path: Path, lacks: Sequence[tuple[int, str]]) -> Verdict:
    needs = tuple(f"{what} (line {line})" if line else what for line, what in dict.fromkeys(lacks))
    return Verdict(str(path), "unsupported", lacks[0][0], f"not supported here: {lacks[0][1]}", needs=needs)


def judge_all(
    paths: Sequence[Path],
    make: Make,
    jobs: int = 1,
    least_tolerance_us: int = 0,
    defines: Mapping[str, str] | None = None,
    options: tuple[tuple[str, str], ...] = (),
) -> Iterator[Verdict]:
    """Verdicts in the order of the paths. jobs: scripts at a time, in a thread each."""
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(lambda path: judge(path, make, least_tolerance_us, defines, options), paths)
