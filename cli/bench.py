"""corelane bench NAME | all | report FILE... | --list"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from ..bench import registry
from ..runtime.errors import CorelaneError
from . import values
from .benchpage import Page, drawn_or_why, nothing, page_of
from .outputs import check_plot, check_writable
from .usage import Parser, WrongUsage, words_are_wrong

IMPORTS = ("..bench._native",)
UNWINDS = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Arguments that every benchmark takes; a benchmark's own ones are added when its name is known."""
    parser.usage = "corelane bench [--list] [NAME | all | report FILE...] [options]"
    parser.add_argument("name", nargs="?", help="a benchmark, all, or report")
    parser.add_argument("rest", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    parser.add_argument("--list", action="store_true", help="list the benchmarks and their figures")
    parser.add_argument("--json", action="store_true", help="with --list: as JSON")


def run(options: argparse.Namespace) -> int:
    """Dispatch on the name."""
    if options.list:
        return _list(options.json)
    if options.name is None:
        raise WrongUsage("name a benchmark", "", f"one of {', '.join(registry.entries())}, all, or report FILE...")
    if options.name == "report":
        return _report(options.rest)
    if options.name == "all":
        return _measure([n for n in registry.entries() if n not in registry.SHOWS], options.rest, every=True)
    with words_are_wrong():
        name = registry.find(options.name).name
    return _measure([name], options.rest, every=False)


def _list(as_json: bool) -> int:
    found = registry.entries()
    if as_json:
        listed = [{"name": e.name, "summary": e.summary, "figures": list(e.figures)} for e in found.values()]
        print(json.dumps(listed, indent=1))
        return 0
    width = max(map(len, found))
    for e in found.values():
        print(f"{e.name.ljust(width)}  {e.summary}")
        for figure in e.figures:
            print(f"{' ' * width}    {figure}")
    return 0


def _common(parser: argparse.ArgumentParser, every: bool) -> None:
    where = "DIR" if every else "FILE"
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="measuring time (default 10)")
    parser.add_argument("--json", nargs="?", const="-", metavar=where, help=f"write JSON to {where}, or to stdout")
    parser.add_argument("--plot", metavar=where if every else "FILE.png", help="write a plot (needs matplotlib)")
    parser.add_argument("--report", metavar="DIR", help="write one page, DIR/index.html (needs matplotlib)")
    parser.add_argument(
        "--cores", type=values.distinct_cpus, metavar="A,B", help="cores to measure on (default: the first two allowed)"
    )
    parser.add_argument(
        "--baseline",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="measure the systems compared with in the same run (default: yes)",
    )
    parser.add_argument(
        "--patient",
        type=float,
        default=0.0,
        metavar="S",
        help="add up to so many seconds to wait for quieter rounds and to measure loud ones again (default: none)",
    )
    parser.add_argument(
        "--deep-idle", action="store_true", help="leave idle states alone instead of holding /dev/cpu_dma_latency at 0"
    )


def _measure(names: list[str], args: list[str], every: bool) -> int:
    from ..bench.harness.table import report
    from .main import say_error

    code = 0
    page = None
    for name in names:
        entry = registry.find(name)
        module = entry.load()
        parser = Parser(prog=f"corelane bench {'all' if every else name}", description=entry.summary)
        _common(parser, every)
        if hasattr(module, "add_arguments") and not every:
            module.add_arguments(parser)
        options = parser.parse_args(args)
        if not 0 < options.seconds <= 3600:
            parser.error("--seconds takes a number above 0 and at most 3600")
        if not 0 <= options.patient <= 3600:
            parser.error("--patient takes a number from 0 to 3600")
        for kind, path in _outputs(name, options, every).items():
            (check_plot if kind == "plot" else check_writable)(path)
        if options.report and page is None:
            page = Page(Path(options.report) / "index.html", parser.prog)
        if name in registry.SHOWS and options.json != "-":
            _show_doctor()
        try:
            document = measure(name, options, defaults=every)
            if options.json != "-":
                print(getattr(module, "report", report)(document))
            _write(document, module, options, every, page)
        except CorelaneError as e:
            if page:
                page.failed(name, e)
            if not every:
                raise
            say_error(f"corelane bench {name}", e, options.json is not None)
            code = 1
            continue
        if hasattr(module, "closing") and options.json != "-":
            print(module.closing(document))
    if page:
        print(f"wrote {page.path}", file=sys.stderr if options.json == "-" else sys.stdout)
    return code


def _show_doctor() -> None:
    """What this machine gives, in short, before a demonstration."""
    from .checks import examine
    from .doctor import render
    from .system import System

    print(render(examine(System()), brief=True, colour=sys.stdout.isatty(), columns=values.width()), flush=True)


def measure(name: str, options: argparse.Namespace, defaults: bool = False) -> dict[str, Any]:
    """Run one benchmark and return its document.

    options: those of `corelane bench NAME`. defaults: give the benchmark's own options their defaults.
    """
    from ..bench.harness.session import Session

    entry = registry.find(name)
    module = entry.load()
    if defaults and hasattr(module, "add_arguments"):
        own = argparse.ArgumentParser()
        module.add_arguments(own)
        options = argparse.Namespace(**vars(own.parse_args([])) | vars(options))
    with Session(
        name,
        seconds=options.seconds,
        cores=options.cores,
        baseline=options.baseline,
        options=options,
        shallow_idle=not options.deep_idle,
        patient=options.patient,
    ) as session:
        module.run(session)
    session.finish(entry.figures)
    return session.document()


def _outputs(name: str, options: argparse.Namespace, every: bool) -> dict[str, Path]:
    """Files that a benchmark is to write: those of "json" and "plot" that were asked for."""
    asked = {"json": options.json if options.json != "-" else None, "plot": options.plot}
    endings = {"json": "json", "plot": "png"}
    return {k: Path(to) / f"{name}.{endings[k]}" if every else Path(to) for k, to in asked.items() if to}


def _write(document: dict[str, Any], module: Any, options: argparse.Namespace, every: bool, page: Page | None) -> None:
    from ..bench.harness import document as doc

    if options.json == "-":
        print(json.dumps(document, indent=1, allow_nan=False))
    outputs = _outputs(document["bench"], options, every)
    told = sys.stderr if options.json == "-" else sys.stdout
    if "json" in outputs:
        doc.write(document, outputs["json"])
    if "plot" in outputs and (why := nothing(document)):
        print(f"no plot written, since {why}", file=told)
        del outputs["plot"]
    if "plot" in outputs or page:
        drawn, failure = drawn_or_why(document, module, outputs.get("plot"))
        if page:
            page.add(document, drawn)
        if failure:
            raise failure
    for path in outputs.values():
        print(f"wrote {path}", file=told)


def _report(args: list[str]) -> int:
    """Markdown tables from documents, or a page."""
    from ..bench.harness import document as doc
    from ..bench.harness.markdown import report, write_into

    parser = Parser(prog="corelane bench report", description="Markdown tables from files written by --json")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="files, or folders of them")
    parser.add_argument("--html", type=Path, metavar="PAGE", help="write one HTML page with plots (needs matplotlib)")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="write between the page's result markers instead")
    parser.add_argument("--json", action="store_true", help="print the documents as one JSON object instead")
    options = parser.parse_args(args)
    files: list[Path] = []
    for path in options.files:
        files += sorted(path.glob("*.json")) if path.is_dir() else [path]
    if not files:
        raise CorelaneError("report", "no documents found", "write some: corelane bench all --json DIR")
    documents = [doc.read(path) for path in files]
    if options.json:
        figures = {name: figure for d in documents for name, figure in d["figures"].items()}
        print(json.dumps({"figures": figures, "documents": documents}, indent=1, allow_nan=False))
        return 0
    if options.html is not None:
        return page_of(documents, options.html)
    text = report(documents)
    if options.into is None:
        print(text)
    else:
        write_into(options.into, text)
        print(f"wrote {options.into}")
    return 0
