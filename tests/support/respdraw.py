"""Words for generated commands, from a seed."""

from __future__ import annotations

import random
from collections.abc import Callable


class Draw:
    """What one sequence of commands draws from."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)

    def one(self, *of: object) -> object:
        return self.rng.choice(of)

    def key(self) -> str:
        return self.rng.choice(["k1", "k2", "k3", "key-4", "none"])

    def value(self) -> bytes | str | int:
        return self.rng.choice(
            ["", "a", "b", "abc", "10", "-7", "3.5", 0, 12345, "9223372036854775807", b"\x00\xff\r\n", "x" * 70, "A"]
        )

    def number(self) -> object:
        return self.rng.choice([0, 1, 2, 3, -1, -2, 5, 100, -100, "x", "", "1.5", "9223372036854775807", "+1", " 1"])

    def index(self) -> int:
        return self.rng.choice([0, 1, 2, 3, -1, -2, -3, 7, -7, 100, -100])

    def some(self, make: Callable[[], object], most: int = 4) -> list[object]:
        return [make() for _ in range(self.rng.randint(1, most))]

    def maybe(self, *words: object, chance: float = 0.3) -> list[object]:
        return list(words) if self.rng.random() < chance else []
