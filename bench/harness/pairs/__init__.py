"""corelane.bench.harness.pairs: the p99 of arms over those of others, by turns in pairs, until it is known on which
side of a goal each ratio lies. `hostile` and `isolation` measure so.

    paired.py      the ratio of two arms' p99, and how well pairs of turns know it
    sequential.py  which arms have a turn, and when one is decided
    judge.py       the figure: the largest of several ratios

tails/ has all requests of an arm as one population. Here a turn counts by its middle windows: what an arm does all the
time is in them, and the machine's pauses are not.
"""

from .judge import SURE, judge, said, sentence
from .paired import Paired, paired
from .sequential import ABOVE, LOOKS, OPEN, SHOWN, WITHIN, Compared, Rounds, Turn, take

__all__ = [
    "ABOVE",
    "LOOKS",
    "OPEN",
    "SHOWN",
    "SURE",
    "WITHIN",
    "Compared",
    "Paired",
    "Rounds",
    "Turn",
    "judge",
    "paired",
    "said",
    "sentence",
    "take",
]
