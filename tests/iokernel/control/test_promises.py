"""Deadlines from asking to their end, on a clock of the test's own, with applications made up (promises.py)."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from corelane.iokernel.control.promises import MEASURE_CORES, MOST, Ask, Client, Machine, Promise, Promises, Reading

STEP_S, PUBLISHED_S = 0.05, 0.25


@dataclass
class App:
    """rate: units in a core second. spare: cores that it gets though nobody promised them. works: it has work."""

    client: Client
    rate: float
    spare: float = 0.0
    works: bool = True
    publishes: bool = True
    promised: float = 0.0
    core_s: float = 0.0
    promised_s: float = 0.0
    done: float = 0.0
    published: tuple[float, int] = (0.0, 0)


@dataclass
class World:
    """Applications on one loop. guaranteed: cores that others have for themselves. stolen: of the core time that they
    had, what the host took, in which they did nothing."""

    cores: float = 1.0
    guaranteed: dict[str, int] = field(default_factory=dict)
    stolen: float = 0.0
    now: float = 100.0
    gap_s: float = 0.0
    apps: dict[int, App] = field(default_factory=dict)
    told: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        def tell(event: str, text: str) -> None:
            self.told.append(f"{event}: {text}")

        self.promises = Promises(self.read, self.machine, self.give, tell, lambda: self.now)

    def add(self, rate: float, *, limit: float = 1.0, most: float = 1.0, group: str = "1000", **more: float) -> App:
        number = len(self.apps) + 1
        client = Client(number, f"job{number}", 0, most, group, limit, "deadline_cores")
        self.apps[number] = App(client, rate, published=(self.now, 0), **more)
        return self.apps[number]

    def read(self, app: int, counter: str) -> Reading:
        a = self.apps[app]
        at_s, units = a.published
        return Reading(at_s, units if a.publishes and counter == "units" else None, a.core_s, a.promised_s)

    def machine(self, loop: int) -> Machine:
        return Machine(max(0.0, self.cores - sum(self.guaranteed.values())), self.guaranteed, self.gap_s)

    def give(self, app: int, cores: float) -> None:
        self.apps[app].promised = cores

    def ask(self, app: App, work: int, within_s: float) -> Promise:
        return self.promises.ask(app.client, Ask(work, int(app.done), within_s, "units"))

    def run(self, seconds: float) -> None:
        """Guarantees come before promises, these before what is spare."""
        for _ in range(round(seconds / STEP_S)):
            assert sum(a.promised for a in self.apps.values()) <= self.cores + 1e-9
            left = self.cores - sum(self.guaranteed.values())
            left -= sum(a.promised for a in self.apps.values() if a.works)
            for a in self.apps.values():
                more = max(0.0, min(a.spare - a.promised, left))
                got = max(0.0, a.promised + min(left, 0.0) + more) if a.works else 0.0
                left -= more if a.works else 0.0
                a.core_s += got * STEP_S
                a.promised_s += a.promised * STEP_S if a.works else 0.0
                a.done += got * STEP_S * a.rate * (1 - self.stolen)
                self.gap_s += got * STEP_S * self.stolen
            self.now += STEP_S
            for a in self.apps.values():
                if self.now >= a.published[0] + PUBLISHED_S - 1e-9:
                    a.published = (self.now, int(a.done))
            self.promises.look()


def test_one_is_measured_admitted_and_done_in_time() -> None:
    world = World()
    app = world.add(rate=10_000)
    promise = world.ask(app, 100_000, 30.0)
    world.run(1.0)
    assert (promise.state, app.promised) == ("measuring", MEASURE_CORES)
    world.run(3.0)
    assert promise.state == "admitted", promise.text
    assert 9_000 < promise.rate < 11_000
    assert 0.35 < app.promised < 0.50  # 10 core seconds in 26 s, and a tenth more
    world.run(26.0)
    assert promise.state == "met", promise.text
    assert app.promised == 0
    assert world.promises.stats() == {
        "asked": 1,
        "admitted": 1,
        "refused": 0,
        "met": 1,
        "missed": 0,
        "withdrawn": 0,
        "reasons": {"neighbour": 0, "machine": 0, "slower": 0, "idle": 0},
        "last_missed": [],
    }


def test_what_others_leave_makes_the_promise_smaller() -> None:
    world = World()
    app = world.add(rate=10_000, spare=0.9)
    promise = world.ask(app, 150_000, 30.0)
    world.run(2.0)
    assert promise.state == "admitted"
    first = app.promised
    world.run(10.0)
    assert app.promised < first - 0.1
    app.spare = 0.0
    world.run(20.0)
    assert promise.state == "met", promise.text


def test_one_that_cannot_be_kept_is_told_what_can() -> None:
    world = World()
    promises = [world.ask(world.add(rate=1000), work, 20.0) for work in (10_000, 12_000)]
    world.run(6.0)
    first, second = promises
    assert first.state == "admitted"
    assert second.state == "refused"
    assert "at 1,0" in second.text or "at 99" in second.text
    assert "beside job1" in second.text
    said = float(second.text.rpartition("within ")[2].split()[0])
    # What is left of both, 22 core seconds and a tenth, takes about 24 s from the beginning.
    assert 22 < said < 28
    world.run(15.0)
    assert first.state == "met"
    again = world.add(rate=1000)
    third = world.ask(again, 12_000, said)  # alone it can be kept all the more
    world.run(5.0)
    assert third.state == "admitted"


def test_a_limit_of_a_user_and_of_what_an_application_can_use() -> None:
    world = World(cores=4.0)
    narrow = world.ask(world.add(rate=1000, limit=4.0, most=1.0), 25_000, 20.0)
    limited = world.ask(world.add(rate=1000, limit=0.5, most=4.0, group="other"), 12_000, 20.0)
    allowed = world.ask(world.add(rate=1000, limit=4.0, most=4.0, group="third"), 25_000, 20.0)
    world.run(6.0)
    assert [p.state for p in (narrow, limited, allowed)] == ["refused", "refused", "admitted"]
    assert "of 0.5 cores that may be promised" in limited.text


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"work": 0}, "0 units within"),
        ({"work": 2**63}, "cannot be"),
        ({"within_s": 0.0}, "cannot be"),
        ({"within_s": 1e9}, "cannot be"),
        ({"counter": "Units!"}, "names no counter"),
    ],
)
def test_what_cannot_be_is_refused_at_once(change: dict[str, object], said: str) -> None:
    world = World()
    app = world.add(rate=1000)
    ask = Ask(**{"work": 10, "done": 0, "within_s": 10.0, "counter": "units", **change})  # type: ignore[arg-type]
    promise = world.promises.ask(app.client, ask)
    assert promise.state == "refused"
    assert said in promise.text
    assert app.promised == 0
    assert world.promises.look() == float("inf")


def test_who_may_be_promised_nothing_hears_which_option_allows_it() -> None:
    world = World()
    assert "deadline_cores, say 0.5" in world.ask(world.add(rate=1000, limit=0.0), 10, 10.0).text


def test_there_is_a_budget_of_deadlines() -> None:
    world = World()
    for _ in range(MOST):
        assert world.ask(world.add(rate=1000), 10_000, 60.0).state == "measuring"
    assert f"{MOST} deadlines are kept here already" in world.ask(world.add(rate=1000), 10, 10.0).text
    world.promises.forget(1)
    assert world.ask(world.add(rate=1000), 10_000, 60.0).state == "measuring"


def test_one_deadline_at_a_time() -> None:
    world = World()
    app = world.add(rate=1000)
    promise = world.ask(app, 10_000, 60.0)
    assert world.ask(app, 99, 1.0) is promise
    world.promises.forget(app.client.id)
    assert world.promises.of(app.client.id) is None
    assert world.promises.stats()["withdrawn"] == 1
    assert app.promised == 0


@pytest.mark.parametrize(
    ("how", "said"),
    [("silent", "it publishes no counter units"), ("coarse", "units in"), ("idle", "0 units in 0.000 core seconds")],
)
def test_one_whose_rate_cannot_be_known_is_refused(how: str, said: str) -> None:
    world = World()
    app = world.add(rate=0.1 if how == "coarse" else 1000, publishes=how != "silent", works=how != "idle")
    promise = world.ask(app, 1000, 30.0)
    world.run(7.0)
    assert promise.state == "refused"
    assert said in promise.text
    assert app.promised == 0


def test_a_guarantee_that_comes_later_is_the_reason_of_a_miss() -> None:
    world = World()
    app = world.add(rate=1000)
    promise = world.ask(app, 10_000, 20.0)
    world.run(6.0)
    assert promise.state == "admitted"
    world.guaranteed["kv"] = 1
    world.run(15.0)
    assert (promise.state, promise.reason) == ("missed", "neighbour")
    assert "cores went to guarantees of others: kv 1" in promise.text
    assert world.told == [f"missed: job1 missed its deadline: {promise.text}"]
    stats = world.promises.stats()
    assert (stats["missed"], stats["reasons"]["neighbour"], stats["last_missed"][0]["name"]) == (1, 1, "job1")
    assert app.promised == 0


@pytest.mark.parametrize(
    ("reason", "stolen", "slower", "idle"),
    [
        ("machine", 0.9, 1.0, False),
        ("slower", 0.0, 0.1, False),
        ("idle", 0.0, 1.0, True),
    ],
)
def test_other_reasons_of_a_miss(reason: str, stolen: float, slower: float, idle: bool) -> None:
    world = World()
    app = world.add(rate=1000)
    promise = world.ask(app, 12_000, 20.0)
    world.run(6.0)
    assert promise.state == "admitted"
    world.stolen, app.rate, app.works = stolen, app.rate * slower, not idle
    world.run(15.0)
    assert (promise.state, promise.reason) == ("missed", reason), promise.lost
    assert promise.lost[reason] > 1.0


def test_work_that_is_said_to_be_done_is_done() -> None:
    """The application's own word comes before what it publishes, which may be a quarter of a second old."""
    world = World()
    app = world.add(rate=1000)
    promise = world.ask(app, 100, 20.0)
    world.run(0.3)
    assert world.promises.of(app.client.id, 50) is promise
    assert promise.state == "measuring"
    world.promises.of(app.client.id, 100)
    assert promise.state == "met"
    assert world.promises.stats_of(app.client.id)["done"] == 100


def test_what_is_shown_of_one() -> None:
    world = World()
    app = world.add(rate=1000)
    world.ask(app, 10_000, 20.0)
    world.run(6.0)
    shown = world.promises.stats_of(app.client.id)
    assert shown is not None
    assert (shown["state"], shown["counter"], shown["work"], shown["within_s"]) == ("admitted", "units", 10_000, 20.0)
    assert shown["passed_s"] == pytest.approx(6.0)
    assert 0 < shown["done"] < 10_000
    assert shown["in_time"]
    assert shown["passed_s"] + shown["ends_in_s"] < 21
    assert shown["units_per_core_s"] == pytest.approx(1000, rel=0.05)
    assert world.promises.stats_of(99) is None


@pytest.mark.parametrize("seed", range(3))
def test_no_admitted_deadline_is_missed_while_rates_hold(seed: int) -> None:
    """Random jobs come to a machine of some cores; some find cores spare now and then."""
    rng = random.Random(seed)
    world = World(cores=float(rng.randint(1, 3)))
    promises = []
    for _ in range(25):
        app = world.add(rate=rng.uniform(500, 50_000), limit=rng.choice([0.5, 1.0, 3.0]), most=rng.choice([1.0, 2.0]))
        app.client = Client(**{**_fields(app.client), "group": str(app.client.id)})
        app.spare = rng.choice([0.0, 0.0, 0.2])
        within_s = rng.uniform(5, 30)
        promises.append(world.ask(app, int(app.rate * within_s * rng.uniform(0.05, 0.5)), within_s))
        world.run(rng.uniform(0.5, 3))
    world.run(35)
    states = [p.state for p in promises]
    assert "missed" not in states, [p.text for p in promises if p.state == "missed"]
    assert states.count("met") > 4
    assert set(states) <= {"met", "refused"}


def _fields(client: Client) -> dict[str, object]:
    return {name: getattr(client, name) for name in Client.__dataclass_fields__}
