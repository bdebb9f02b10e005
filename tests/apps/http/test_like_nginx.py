"""The same bytes to ours and to nginx: the same statuses, bodies and ends of connections, or a reason why not.

What is listed under a reason (httpdifferences) is what ours answers; what nginx does then differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from httpcases import CUT, FAMILIES, ask
from httpdifferences import DIFFERENT
from httphost import Server, read_answers
from httpnet import needs
from likenginx import Nginx, Ours, nginx, outcome

from corelane.apps.http.handlers import Request, route


@pytest.fixture(scope="module")
def theirs(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nginx]:
    needs("nginx")
    with nginx(folder, tmp_path_factory.mktemp("nginx")) as made:
        yield made


@route("/take", methods=("GET", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"), compiled=False)
def take(_request: Request) -> str:
    return "taken\n"


@pytest.fixture
def ours(serve: Callable[..., Server]) -> Ours:
    server = serve()
    take.add_to(server.service)
    return Ours(server)


def tag_of(server: Nginx | Ours) -> bytes:
    return read_answers(server.raw(ask()))[0].headers["etag"].encode()


@pytest.mark.parametrize("family", FAMILIES)
def test_as_nginx_does(ours: Ours, theirs: Nginx, family: str) -> None:
    listed = {name: text for of in DIFFERENT.values() for text, names in of.items() for name in names}
    ours_tag, theirs_tag = tag_of(ours), tag_of(theirs)
    for name, request in FAMILIES[family].items():
        found, wanted = outcome(ours, request, ours_tag), outcome(theirs, request, theirs_tag)
        if name in listed:
            assert found.text == listed[name], name
            assert found != wanted, f"{name}: it is no difference"
        else:
            assert found == wanted, name


def test_each_difference_is_of_one_case() -> None:
    cases = [name for cases in FAMILIES.values() for name in cases]
    names = [name for of in DIFFERENT.values() for group in of.values() for name in group]
    assert len(set(cases)) == len(cases)
    assert len(set(names)) == len(names)
    assert set(names) <= set(cases)


def test_what_is_cut_off_has_no_answer(ours: Ours) -> None:
    for name, request in CUT.items():
        assert outcome(ours, request, b"", last=False).text == (
            "200 shut" if name == "behind a whole one" else "shut"
        ), name
