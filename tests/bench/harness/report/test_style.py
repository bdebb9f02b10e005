"""The colours of style.css have the contrast that it says, in both schemes, and are those of the plots."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from corelane.bench.harness.figure import COLOURS
from corelane.bench.harness.report import page

CSS = (Path(page.__file__).parent / "style.css").read_text()
LIGHT, DARK = (dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", part)) for part in CSS.split("@media", 1))
DARK = {name: DARK[name] for name in LIGHT}


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    red, green, blue = (p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_what_it_is_known_to_be() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("scheme", [LIGHT, DARK], ids=["light", "dark"])
def test_text_and_curves_can_be_read(scheme: dict[str, str]) -> None:
    for name, colour in scheme.items():
        if name in ("page", "line", "shade"):
            continue
        least = 3.0 if re.fullmatch(r"p[n\d]", name) else 4.5
        for ground in ("page", "shade"):
            if least == 4.5 or ground == "page":
                assert contrast(colour, scheme[ground]) >= least, (name, ground)


def test_curves_have_the_colours_of_plots() -> None:
    assert [LIGHT[f"p{i}"] for i in range(len(COLOURS))] == list(COLOURS)
    assert len({DARK[f"p{i}"] for i in range(len(COLOURS))}) == len(COLOURS)
    for i in range(len(COLOURS)):
        assert f".p{i} {{ --paint: var(--p{i}); }}" in CSS
