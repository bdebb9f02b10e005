"""The JSON document of a benchmark (bench, version, machine, settings, canary, arms, figures), and its check."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ...runtime.errors import CorelaneError
from ...runtime.files import write_whole
from .goals import GOALS

MEMBERS = ("bench", "version", "machine", "settings", "canary", "arms", "figures")
_KINDS = {"machine": dict, "settings": dict, "canary": dict, "arms": list, "figures": dict}
FIGURE_MEMBERS = ("value", "goal", "sense", "met", "runs")


def corelane_version() -> str:
    """The installed version, or "unknown" in a tree that was never installed."""
    try:
        return version("corelane")
    except PackageNotFoundError:
        return "unknown"


def figure(name: str, value: float | None, runs: list[float], reason: str | None) -> dict[str, Any]:
    """One member of "figures". `value` None needs a reason."""
    goal = GOALS[name]
    out: dict[str, Any] = {
        "value": value,
        "goal": goal.goal,
        "sense": goal.sense,
        "met": None if value is None else goal.met(value),
        "runs": runs,
    }
    if value is None:
        if not reason:
            raise ValueError(f"figure {name} has neither a value nor a reason")
        out["reason"] = reason
    return out


def too_loud(canary: dict[str, Any]) -> str:
    """Why nothing of a run is judged, from its member "canary"; empty if it may be judged."""
    if not canary.get("loud"):
        return ""
    lost, bound = 100 * canary["worst_lost_fraction"], 100 * canary["bound_lost_fraction"]
    return f"the canary lost {lost:.2g} % of core {canary['worst_cpu']}, and {bound:g} % is the most that is judged"


def judged(figures: dict[str, dict[str, Any]], canary: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The figures as they are; of a loud run, those in real time neither met nor missed, with the reason."""
    why = too_loud(canary)
    if not why:
        return figures
    return {
        name: fig if fig["value"] is None or GOALS[name].virtual else fig | {"met": None, "reason": why}
        for name, fig in figures.items()
    }


def problems(document: Any) -> list[str]:
    """What is wrong with the shape of a document; empty if nothing is."""
    if not isinstance(document, dict):
        return ["not a JSON object"]
    out = [f"member {m!r} is missing" for m in MEMBERS if m not in document]
    out += [f"unknown member {m!r}" for m in document if m not in MEMBERS]
    out += [f"member {m!r} is none of its kind" for m, kind in _KINDS.items() if not isinstance(document.get(m), kind)]
    if out:
        return out
    for arm in document["arms"]:
        if not isinstance(arm, dict) or not isinstance(arm.get("name"), str):
            out.append(f"an arm has no name: {arm!r}")
    for name, fig in document["figures"].items():
        out += [f"{name}: {p}" for p in _figure_problems(name, fig)]
    return out


def _figure_problems(name: str, fig: Any) -> list[str]:
    if name not in GOALS:
        return ["is not declared in goals.py"]
    if not isinstance(fig, dict) or any(m not in fig for m in FIGURE_MEMBERS):
        return [f"needs the members {', '.join(FIGURE_MEMBERS)}"]
    out = []
    if (fig["goal"], fig["sense"]) != (GOALS[name].goal, GOALS[name].sense):
        out.append("states another goal than goals.py")
    if fig["value"] is None:
        if not fig.get("reason"):
            out.append("has neither a value nor a reason")
        if fig["met"] is not None:
            out.append("is met or missed without a value")
    elif fig["met"] is None:
        if GOALS[name].goal is not None and not fig.get("reason"):
            out.append("is not judged and has no reason")
    elif GOALS[name].goal is None:
        out.append("is met or missed and has no goal")
    elif fig["met"] is not GOALS[name].met(fig["value"]):
        out.append("says wrongly whether it is met")
    return out


def write(document: dict[str, Any], path: Path) -> None:
    """Write the document, checked, whole or not at all."""
    wrong = problems(document)
    if wrong:
        raise ValueError(f"not a document: {'; '.join(wrong)}")
    text = json.dumps(document, indent=1, allow_nan=False) + "\n"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, text.encode())


def read(path: Path) -> dict[str, Any]:
    """Read a document; CorelaneError that says what is wrong with it."""
    try:
        document: dict[str, Any] = json.loads(path.read_text())
    except OSError as e:
        raise CorelaneError(f"{path}: {e.strerror}: give a file written by corelane bench NAME --json FILE") from e
    except (ValueError, RecursionError) as e:
        raise CorelaneError(f"{path} is not JSON ({e}): give a file written by corelane bench NAME --json FILE") from e
    wrong = problems(document)
    if wrong:
        raise CorelaneError(f"{path} is not a benchmark document: {wrong[0]}")
    return document
