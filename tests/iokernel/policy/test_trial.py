"""What is refused before it is installed: policies that misbehave on generated tables, in a process of their own."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from cltest.cbuild import ROOT

from corelane.iokernel._native import ffi, lib
from corelane.iokernel.policy import policy
from corelane.iokernel.policy import shared_object as policy_so
from corelane.runtime.errors import CorelaneError, Refused

NAMES = list(policy.BUILTIN)


@pytest.fixture(scope="module")
def bad(bad_policies: Path) -> str:
    return str(bad_policies)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("loops", "it did not return within 5 ms (bound its loops)"),
        ("beyond", "it touched memory outside of its table of"),
        ("before", "it wrote before apps[0]"),
        ("null_pointer", "it touched memory that is not there"),
        ("divides", "it divided by zero"),
        ("illegal", "it ended with SIGILL"),
        ("recurses", "it touched memory that is not there"),
        ("nonsense", "cores to an application (a grant is a number of cores, from 0 on)"),
        ("writes_nothing", "it left the grant of apps[0] of"),
        ("overwrites", "it wrote guaranteed of an application"),
        ("moody", "it gave another answer to the same tables"),
        ("slow", "20 is the limit"),
    ],
)
def test_what_misbehaves_is_refused_in_a_sentence(bad: str, name: str, said: str) -> None:
    with pytest.raises(Refused) as refused:
        policy.load(f"{bad}:{name}")
    text = str(refused.value)
    late = "it did not return within 5 ms"  # which a slow machine may find first
    assert said in text or (name == "slow" and late in text), text
    assert f":{name}' is refused" in text
    assert "\n" not in text


def test_what_behaves_is_taken(bad: str) -> None:
    loaded = policy.load(f"{bad}:headroom", {"spare": 3})
    assert loaded.guarded
    assert loaded.params == (3, 0, 0, 0, 0, 0, 0, 0)
    assert loaded.settings == {"spare": 3}


def test_what_passes_now_and_loops_later_is_for_the_host(bad: str) -> None:
    assert policy.load(f"{bad}:loops_later").guarded


@pytest.mark.parametrize("name", NAMES)
def test_the_built_in_ones_pass(name: str, seed: int) -> None:
    verdict, err = ffi.new("struct cl_policy_verdict *"), ffi.new("char[256]")
    words = ffi.new("uint64_t[8]", list(policy.load(name).params))
    rc = lib.cl_policy_trial(lib.cl_policy_find(name.encode()), words, seed, 1000, 0, verdict, err)
    assert rc in (lib.CL_POLICY_FINE, lib.CL_POLICY_SLOW), f"{rc}, offset {verdict.offset}, n {verdict.n_apps}"
    assert verdict.tables == 1000


def test_generated_tables_are_possible_and_repeat(seed: int) -> None:
    view, apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", 256)
    for k in range(200):
        n, cores = 1 + k % 256, 1 + (7 * k) % 256
        lib.cl_policy_generate(seed + k, view, apps, n, cores)
        before = bytes(ffi.buffer(apps, n * 128))
        assert sum(apps[i].cores for i in range(n)) <= cores
        for a in apps[0:n]:
            assert a.idle <= a.cores <= a.maximum
            assert max(a.guaranteed, a.demand) <= a.maximum
            assert a.weight >= 1
        lib.cl_policy_generate(seed + k, view, apps, n, cores)
        assert bytes(ffi.buffer(apps, n * 128)) == before


PYTHON = """
import ctypes

calls = []

def spare(view, apps, cores=1, share=0.5):
    for i in range(view.n_apps):
        a = apps[i]
        a.grant = max(a.cores - a.idle - 5, 0) + cores + int(share * a.maximum)

def endless(view, apps):
    i = 0
    while i < 5:
        apps[0].grant = i

def beyond(view, apps):
    for i in range(view.n_apps + 1):
        apps[i].grant = 1

def raises(view, apps):
    for i in range(view.n_apps):
        if apps[i].cores > 100:
            raise ValueError("too many")
        apps[i].grant = 1

def allocates(view, apps):
    wanted = [apps[i].cores for i in range(view.n_apps)]
    for i in range(view.n_apps):
        apps[i].grant = wanted[i]

def prints(view, apps):
    print(view.n_apps)

def unknown(view, apps):
    calls.append(view.now_ns)

def misspelt(view, apps):
    apps[0].grants = 1

def texts(view, apps):
    apps[0].grant = "one"

def imports(view, apps):
    import random
    apps[0].grant = random.randint(0, 1)

foreign_getpid = ctypes.CDLL(None).getpid
foreign_getpid.argtypes, foreign_getpid.restype = (), ctypes.c_int

def foreign(view, apps):
    for i in range(view.n_apps):
        apps[i].grant = foreign_getpid() & 1

def helper(cores):
    return cores + 1

def plain(view, apps):
    for i in range(view.n_apps):
        apps[i].grant = helper(apps[i].cores)

def settings(view, apps, name="a"):
    pass

def bare(view, apps, spare):
    pass

def alone(view):
    pass

number = 5
"""
# Of its own, since importing it compiles.
CALLING = """
import numba

@numba.njit("int64(int64)")
def less(cores):
    return cores - 1

@numba.njit("int64(int64)")
def more(cores):
    return cores + 1

def chosen(view, apps):
    chosen_one = more if view.n_apps > 2 else less
    for i in range(view.n_apps):
        apps[i].grant = chosen_one(apps[i].cores)

def named(view, apps):
    for i in range(view.n_apps):
        apps[i].grant = more(less(apps[i].cores))
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """A Python module of policies, under a name of this test's own, and of NAME_calling."""
    name = f"policies_{abs(hash(request.node.name))}"
    (tmp_path / f"{name}.py").write_text(PYTHON)
    (tmp_path / f"{name}_calling.py").write_text(CALLING)
    monkeypatch.syspath_prepend(str(tmp_path))
    return name


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("endless", "it did not return within 5 ms"),
        ("beyond", "outside of its table"),
        pytest.param("raises", "it may raise an exception", marks=pytest.mark.soak(takes_s=2)),
        ("settings", "the default of name is 'a'"),
        ("missing", "has no missing"),
    ],
)
def test_python_that_is_no_policy_is_refused_by_its_trial(module: str, name: str, said: str) -> None:
    with pytest.raises(CorelaneError) as refused:
        policy.load(f"{module}:{name}")
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.filterwarnings("ignore:.*First-class function type")
@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("raises", "it may raise an exception"),
        ("allocates", "it allocates memory"),
        ("prints", "needs the interpreter"),
        ("foreign", "it calls a function that it does not name"),
        ("calling:chosen", "it calls a function that it does not name"),
        ("unknown", "numba cannot compile it: Untyped global name 'calls': Cannot type empty list (line "),
        ("misspelt", "numba cannot compile it: the table has no field 'grants' (loops, "),
        ("texts", "numba cannot compile it: Cannot cast Literal[str](one) to int32: i8* null (line "),
        ("imports", "numba cannot compile it: Use of unsupported opcode (IMPORT_NAME) found."),
        ("plain", "(decorate the function that it calls with @numba.njit)"),
        ("bare", "its setting spare has no default (give it one, as in spare=0)"),
        ("alone", "a policy takes a view, the applications"),
        ("number", "number is no function"),
    ],
)
def test_python_that_is_no_policy_is_refused_before_it_is_called(module: str, name: str, said: str) -> None:
    """In this process: a trial takes a second of imports, and does the same first."""
    with pytest.raises(CorelaneError) as refused:
        policy.load(f"{module}_{name}" if ":" in name else f"{module}:{name}", trial=False)
    assert said in str(refused.value)
    assert "\n" not in str(refused.value)


def test_python_may_call_functions_by_name(module: str) -> None:
    assert policy.load(f"{module}_calling:named").guarded


def test_a_module_that_is_not_there_is_looked_for_where_it_says() -> None:
    with pytest.raises(CorelaneError) as refused:
        policy.load("no_such_module:headroom")
    assert f"it must be in {os.getcwd()} or on the PYTHONPATH" in str(refused.value)


def test_python_gets_its_settings_by_name(module: str) -> None:
    loaded = policy.load(f"{module}:spare", {"cores": 3, "share": 0.25})
    view, apps = ffi.new("struct cl_policy_view *"), ffi.new("struct cl_policy_app[]", 1)
    view.n_apps, view.n_cores = 1, 64
    view.params[0:8] = loaded.params
    apps[0].cores, apps[0].idle, apps[0].maximum = 2, 1, 40
    ffi.cast("cl_policy_fn", loaded.address)(view, apps)
    assert apps[0].grant == 0 + 3 + 10  # 1 busy less 5 is below zero, and no huge unsigned number
    assert loaded.settings == {"cores": 3, "share": 0.25}
    again = policy.load(f"{module}:spare", trial=False)
    assert again.settings == {"cores": 1, "share": 0.5}


GOOD = """#include <corelane/iokernel/policy.h>
#include <stdlib.h>
#define P const struct cl_policy_view *v, struct cl_policy_app *a
"""


@pytest.mark.parametrize(
    ("body", "flags", "said"),
    [
        ("void p(P) { a[0].grant = v->n_apps; }", [], 'add CL_POLICY(p, "")'),
        ('static void q(P) { a[0].grant = v->n_apps; }\nvoid *keep = q;\nCL_POLICY(p, "")', [], "does not export"),
        ('void p(P) { a[0].grant = *(char *)malloc(v->n_apps); }\nCL_POLICY(p, "")', [], "it calls malloc"),
        ('void p(P) { a[0].grant = v->n_apps; }\nCL_POLICY(p, "")', ["-DABI=7"], "of policy ABI 7"),
        ('void p(P) { a[0].grant = v->n_apps; }\nCL_POLICY(p, "")', ["-c"], "not linked"),
        (
            'void p(P) { a[0].grant = v->n_apps; }\nCL_POLICY(p, "")',
            ["-fstack-protector-all"],
            "it calls __stack_chk_fail; compile it with -fno-stack-protector",
        ),
    ],
)
def test_shared_objects_are_read_before_they_are_loaded(tmp_path: Path, body: str, flags: list[str], said: str) -> None:
    head = GOOD + ("#undef CL_POLICY_ABI\n#define CL_POLICY_ABI ABI\n" if "-DABI=7" in flags else "")
    (tmp_path / "p.c").write_text(head + body)
    command = ["gcc", "-O1", "-fno-builtin-malloc", "-fPIC", *([] if "-c" in flags else ["-shared"]), *flags]
    subprocess.run([*command, f"-I{ROOT}/include", str(tmp_path / "p.c"), "-o", str(tmp_path / "p.so")], check=True)
    with pytest.raises(CorelaneError) as refused:
        policy.load(f"{tmp_path}/p.so:p")
    assert said in str(refused.value)


def test_what_is_no_shared_object_is_refused(tmp_path: Path) -> None:
    (tmp_path / "p.so").write_text("hello, world: this is text")
    with pytest.raises(CorelaneError, match="it is not an ELF file"):
        policy.load(f"{tmp_path}/p.so:p")
    with pytest.raises(CorelaneError, match="No such file"):
        policy.load(f"{tmp_path}/q.so:p")


def test_a_note_is_what_the_header_says(bad: str) -> None:
    content = policy_so.read(Path(bad))
    assert policy_so.inspect(Path(bad), content, "headroom") == ("spare",)
    assert policy_so.inspect(Path(bad), content, "loops") == ()
