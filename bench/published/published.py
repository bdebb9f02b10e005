"""The benchmark `corelane bench published`: planners beside exact answers, and what the policies' papers claim beside
what our simulator gives. The package's page says more."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ..harness.plot import Canvas
    from ..harness.session import Session
    from .claims import Claim

SUMMARY = (
    "published policies: planners against exact answers, each paper's claim again, all on the same jobs, simulated"
)
FIGURES = ("lab.brute_force", "lab.claims")
CASES_MOST = 1000  # of each planner
CASES_PER_S = 200
SEEDS_LEAST, SEEDS_MOST = 5, 10  # of each claim
TOGETHER_SEEDS = 3


def run(session: Session) -> None:
    """By session.seconds: up to a thousand cases of each planner, and five to ten seeds of each claim. Then all
    policies on the same jobs."""
    from . import brute_force, held_out

    cases = min(max(int(CASES_PER_S * session.seconds), 20), CASES_MOST)
    gaps = []
    for name in brute_force.PLANNERS:
        session.say(f"{name} against an exact answer, {cases} cases")
        found = brute_force.check(name, cases, seed=1)
        gap = {"gap": found.gap, "worst": found.worst, "worst_seed": found.worst_seed}
        session.arm(f"planner {name}", equal=found.equal, n=cases, first_seed=1, why=found.why, modelled=True, **gap)
        session.note(str(found))
        gaps.append(found.gap)
    session.figure("lab.brute_force", max(gaps), runs=gaps)
    known = held_out.check(seed=1)
    session.note(f"what pollux fits of how jobs scale, on {known}")
    seeds = range(1, 1 + min(max(int(2 * session.seconds), SEEDS_LEAST), SEEDS_MOST))
    _claims(session, seeds)
    _together(session, seeds[:TOGETHER_SEEDS])
    session.settings["message"] = "one simulated job, from its arrival to its end"


def _claims(session: Session, seeds: range) -> None:
    from . import claims

    missing, beaten, chosen, missed_first = [], [], [], 0
    for row, where in claims.every(seeds, session.say):
        claim, own = row.claim, where == claims.OWN
        if own and row.verdict == "not seen":
            missing.append(claim.policy)
        if own and row.strongest and row.strongest.low <= 1.0:
            beaten.append(f"{claim.policy} ({row.strongest.against})")
        about = {"policy": claim.policy, "against": row.paper.against, "says": claim.says, "load": claim.load}
        ours = {"ours": row.paper.ours, "ours_low": row.paper.low, "ours_high": row.paper.high, "verdict": row.verdict}
        if not math.isnan(claim.least):
            ours |= {"paper_least": claim.least, "paper_most": claim.most}
        if row.strongest:
            best = row.strongest
            ours |= {"strongest": best.against, "over_strongest": best.ours}
            ours |= {"over_strongest_low": best.low, "over_strongest_high": best.high}
        ours |= {f"times_{name}": times for name, times in row.paper.costs.items()}
        name = f"{claim.policy}, {row.speeds}"
        if where == claims.BEYOND:
            name += f", {claim.load}"
        if where == claims.FIRST:
            said = _first(claim)
            name += f", at first: {said}"
            chosen.append(f"{claim.policy}: {row.paper} with {said}; {claim.why}")
            missed_first += row.verdict == "not seen"
        more = {"n": row.n, "seeds": len(seeds), "undone": row.undone, "own_setting": own}
        more["before_results"] = where == claims.FIRST
        session.arm(name, modelled=True, **more, **about, **ours)
    rates = claims.nexus_rates(4, seed=seeds[0])
    others = max(rates["fixed"], rates["one"])
    if rates["planned"] <= others:
        missing.append("nexus's plan")
    about = {"policy": "nexus's plan", "against": "the better of fixed batches and one at a time", "load": "sessions"}
    paper = {"paper_least": 1.8, "paper_most": 12.7, "own_setting": True, "n": claims.REQUESTS, "seeds": 1}
    verdict = "direction" if rates["planned"] > others else "not seen"
    ours = {"ours": rates["planned"] / others, "verdict": verdict}
    session.arm("nexus's plan, equal cores", modelled=True, **about, **ours, **paper)
    if missing:
        session.note(f"not seen: {', '.join(missing)}")
    session.note(f"not above the best of all baselines on the same machine: {', '.join(beaten) or 'none'}")
    if chosen:
        session.note(f"settings that were chosen after results were seen, and what came before: {'. '.join(chosen)}")
    beside = {"claims": 1.0 + len(claims.CLAIMS), "not above the best of all baselines": float(len(beaten))}
    beside |= {"set after results": float(len(chosen)), "of these not seen before": float(missed_first)}
    session.figure("lab.claims", float(len(missing)), beside=beside)


def _first(claim: Claim) -> str:
    """What a claim was run with before its results were seen, in words."""
    settings = ", ".join(f"{key}={value:g}" for key, value in claim.settings.items()) or "defaults"
    return f"load {claim.load}" if "load" in claim.first else settings


def _together(session: Session, seeds: range) -> None:
    from . import together

    for row in together.every(seeds, say=session.say):
        numbers = {key: row.numbers.get(key) for key, _ in together.COLUMNS}
        numbers["mean_completion_us_pm"] = row.numbers.get("mean_completion_us_pm")
        about = {"load": row.load, "policy": row.policy, "seats": row.seats, "oracle": row.oracle, "seeds": row.seeds}
        name = f"all policies, {row.load}: {row.policy}, {row.seats} seats"
        session.arm(name, modelled=True, n=int((row.numbers["jobs"] or 0) * row.seeds), **about, **numbers)


def plot(document: dict[str, Any]) -> Canvas:
    """Ours and the paper's ratio of each claim in its own setting, and ours as it was first set."""
    from ..harness.plot import Canvas

    rows = [row for row in document["arms"] if row.get("own_setting") or row.get("before_results")]
    canvas = Canvas(
        "published: what papers claim, and what the simulator gives",
        message=document["settings"]["message"],
        n=int(sum(row["n"] for row in rows)),
        size=(16.0, 9.0),
    )
    labels, values, colours = [], [], []
    for row in rows:
        labels.append(f"{row['policy']}, ours" + (", before results" if row.get("before_results") else ""))
        values.append(float(row["ours"]))
        colours.append(0)
        if "over_strongest" in row:
            labels.append(f"{row['policy']}, ours, over the best baseline")
            values.append(float(row["over_strongest"]))
            colours.append(2)
        if "paper_most" in row and not row.get("before_results"):
            labels.append(f"{row['policy']}, paper at most")
            values.append(float(row["paper_most"]))
            colours.append(1)
    canvas.bars(labels, values, ylabel="what it is held against, over it (x)", colours=colours, log=True)
    canvas.caption("Simulated, 16 cores; papers: their machines, their loads. Above 1: the claim is seen.")
    canvas.caption("Baselines have the best settings of a sweep; the best one is the best of all, on the same machine.")
    return canvas
