"""Each public header compiles alone, in C and in C++, needs no feature macro, and all that it declares links.

The program of a test has one unit a header, which includes that header and no other. It takes the address of every
function that the header declares, calls one, and is linked with the library.
"""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from cltest.cbuild import ROOT, setup_py

HEADERS = [str(h) for h in setup_py().public_headers()]
LIBRARY = ROOT / "runtime" / "_lib"
PACKAGES = {"gcc": "gcc", "g++": "g++", "clang-14": "clang-14", "clang++-14": "clang-14"}
STANDARDS = [
    ("gcc", "c11"),
    pytest.param("clang-14", "c11", marks=pytest.mark.soak(takes_s=2)),
    ("g++", "c++17"),
    pytest.param("g++", "c++20", marks=pytest.mark.soak(takes_s=2)),
    pytest.param("clang++-14", "c++17", marks=pytest.mark.soak(takes_s=2)),
    ("clang++-14", "c++20"),
]

# A use of each header, whose value is true. Those that declare types alone are named with one of them.
USES = {
    "drivers/blk.h": "cl_blk_check(&blk, &req) == -EINVAL",
    "drivers/blk_file.h": 'cl_blk_file_below("/", why) <= CL_BLK_BELOW_CACHED',
    "drivers/memory.h": "cl_memory_link_new(&config, ends, NULL) == 0 && (cl_nic_close(ends[0]), 1)",
    "drivers/nic.h": "sizeof frame && CL_NIC_BURST == 64",
    "drivers/tap.h": 'cl_tap_set_up("a-name-too-long-for-linux", 0, 0, 0, why) < 0',
    "iokernel/policy.h": "cl_policy_find(cl_policy_name(0)) && mine_policy.abi == CL_POLICY_ABI",
    "libos/adopt.h": "cl_adopt_error(-1) != cl_adopt_error(-22)",
    "libos/channel.h": "cl_channel_new(1, 0, &channel) < 0",
    "libos/complete.h": "sizeof completions > sizeof(void *)",
    "libos/elastic.h": "cl_elastic_new(NULL, 0, 0, &elastic, why) < 0",
    "libos/handler.h": "cl_note_serve.port == 9000",
    "libos/lease.h": "cl_region_delete(NULL) == 0",
    "libos/libos.h": "!cl_uthread_self()",
    "libos/log.h": "cl_log_format(&blk, 9, NULL, NULL) < 0",
    "libos/log_shared.h": "sizeof shared > sizeof(struct cl_timer)",
    "libos/poll.h": "cl_poll_delete(NULL) == 0",
    "libos/probe.h": "*cl_probe_word() == 0",
    "libos/reasons.h": "cl_drop_name(CL_DROP_UDP_CHECKSUM)[0] == 'u'",
    "libos/runtime.h": "cl_runtime_new(&config, &rt, why) < 0",
    "libos/sched.h": "(cl_sched_config_init(&config), config.n_kthreads == 1)",
    "libos/scope.h": "cl_scope_open(CL_SCOPE_FOREVER, &scope) < 0",
    "libos/service.h": 'cl_service_cpu("z80", why) < 0 && cl_service_layout()',
    "libos/spin.h": "cl_spin_try(&lock) && (cl_spin_unlock(&lock), 1)",
    "libos/state.h": "cl_lru_new(0, 1, 1, 0, &table) < 0",
    "libos/stepper.h": "cl_stepper_new(&now_ns, &stepper) == 0 && (cl_stepper_delete(stepper), 1)",
    "libos/stream.h": "CL_STREAMS == CL_TCP_CONNECTIONS && sizeof(struct cl_tcp_addr) == 8",
    "libos/sync.h": "(cl_sem_init(&sem, 3), cl_sem_value(&sem)) == 3",
    "libos/tcp.h": "CL_TCP_CONNECTIONS > 0 && sizeof(struct cl_tcp_events) == 9 * sizeof(void (*)(void))",
    "libos/timer.h": "(cl_timer_init(&timer, NULL, NULL), cl_timer_cancel(&timer)) == 0",
    "libos/trace_pc.h": "(__sanitizer_cov_trace_pc(), cl_trace_pc_left) == CL_TRACE_PC_EVERY",
    "libos/udp.h": "!cl_current_request()",
    "libos/uthread.h": "cl_uthread_yield() < 0",
    "libos/wheel.h": "(cl_alarm_init(&alarm_of, NULL), cl_alarm_deadline_ns(&alarm_of)) == CL_ALARM_NONE",
    "runtime/base.h": "(cl_relax(), cl_max(1, 2)) == 2",
    "runtime/clock.h": "cl_clock_default()->hz > 0 && cl_tsc() > 0",
    "runtime/cores.h": "sizeof(struct cl_cores_ops)",
    "runtime/counter.h": "sizeof counter == 40",
    "runtime/park.h": "(cl_park_begin(&parker), cl_park_wake_fast(&parker)) && word == CL_PARK_RUNNING",
    "runtime/promise.h": "sizeof promise == 56 && sizeof(struct cl_promised) == 264",
}
# What a use needs outside of its function, and in it.
ABOVE = {
    "iokernel/policy.h": 'CL_POLICY(mine, "spare")\n'
    "void mine(const struct cl_policy_view *view, struct cl_policy_app *a)\n{ a->grant = view->n_cores; }",
    "libos/handler.h": "CL_HANDLER(serve, 9000);\nint64_t serve(const uint8_t *request, int64_t len, uint8_t *reply, "
    "int64_t room, void *arg)\n{ (void)request, (void)reply, (void)arg; return cl_min(len, room); }",
}
LOCALS = {
    "drivers/blk.h": "static struct cl_blk blk; static struct cl_blk_req req;",
    "drivers/blk_file.h": "char why[256];",
    "drivers/memory.h": "static struct cl_memory_config config; struct cl_nic *ends[2];",
    "drivers/nic.h": "struct cl_frame frame;",
    "drivers/tap.h": "char why[256];",
    "libos/channel.h": "struct cl_channel *channel;",
    "libos/complete.h": "struct cl_completions completions;",
    "libos/elastic.h": "struct cl_elastic *elastic; char why[256];",
    "libos/log.h": "static struct cl_blk blk;",
    "libos/log_shared.h": "struct cl_log_shared shared;",
    "libos/runtime.h": "static struct cl_runtime_config config; struct cl_runtime *rt; char why[256];",
    "libos/sched.h": "struct cl_sched_config config;",
    "libos/scope.h": "struct cl_scope *scope;",
    "libos/service.h": "char why[256];",
    "libos/spin.h": "static struct cl_spin lock;",
    "libos/state.h": "struct cl_lru *table;",
    "libos/stepper.h": "uint64_t now_ns = 1; struct cl_stepper *stepper;",
    "libos/sync.h": "static struct cl_sem sem;",
    "libos/timer.h": "static struct cl_timer timer;",
    "libos/wheel.h": "static struct cl_alarm alarm_of;",
    "runtime/counter.h": "struct cl_counter counter;",
    "runtime/park.h": "static uint32_t word; static struct cl_parker parker = {&word, CL_PARK_FUTEX, 0};",
    "runtime/promise.h": "struct cl_promise promise;",
}


def declared(header: str) -> list[str]:
    """Functions of a header that the library has to have."""
    text = re.sub(r"/\*.*?\*/", "", (ROOT / "include" / header).read_text(), flags=re.S)
    text = re.sub(r"^//.*$|^#(?:.*\\\n)*.*$", "", text, flags=re.M)
    return re.findall(r"^(?!typedef|static)\w[\w \*\n]*?\b(cl_\w+)\([^;{]*\);", text, re.M)


def unit(header: str) -> str:
    """The text of a unit that uses all of one header."""
    key = header.removeprefix("corelane/")
    name = re.sub(r"\W", "_", key)
    return "\n".join(
        [
            f"#include <{header}>",
            ABOVE.get(key, ""),
            "CL_EXTERN_C_BEGIN",
            f"int use_{name}(void);",
            "CL_EXTERN_C_END",
            f"int use_{name}(void)",
            "{",
            LOCALS.get(key, ""),
            *(f"    {{ __typeof__(&{f}) volatile p = &{f}; if (!p) return 0; }}" for f in declared(header)),
            f"    return ({USES[key]}) ? 1 : 0;",
            "}\n",
        ]
    )


def main() -> str:
    """The text of a main that says which use was wrong."""
    names = [re.sub(r"\W", "_", h.removeprefix("corelane/")) for h in HEADERS]
    lines = ["#include <corelane/runtime/base.h>", "#include <stdio.h>", "CL_EXTERN_C_BEGIN"]
    lines += [f"int use_{n}(void);" for n in names]
    lines += ["CL_EXTERN_C_END", "int main(void)", "{", "    int wrong = 0;"]
    lines += [f'    if (!use_{n}()) {{ wrong = 1; puts("{n}"); }}' for n in names]
    return "\n".join([*lines, "    return wrong;", "}\n"])


def test_every_public_header_has_its_use():
    assert [f"corelane/{key}" for key in USES] == HEADERS
    assert "cl_sched_new" in declared("corelane/libos/sched.h")
    assert "cl_monotonic_raw_ns" in declared("corelane/runtime/clock.h")


@pytest.mark.parametrize(("compiler", "standard"), STANDARDS, ids=lambda word: word)
def test_each_header_alone_compiles_and_links(compiler, standard, tmp_path):
    if shutil.which(compiler) is None:
        pytest.skip(f"no {compiler}: apt-get install {PACKAGES[compiler]}")
    suffix = "c" if standard == "c11" else "cc"
    sources = []
    for header in HEADERS:
        source = tmp_path / (header.replace("/", "__") + f".{suffix}")
        source.write_text(unit(header))
        sources.append(source)
    (tmp_path / f"main.{suffix}").write_text(main())
    sources.append(tmp_path / f"main.{suffix}")
    flags = [f"-std={standard}", f"-I{ROOT / 'include'}", "-pthread", "-pipe"]
    flags += ["-Wall", "-Wextra", "-Wpedantic", "-Werror"]
    link = ["-L", str(LIBRARY), f"-Wl,-rpath,{LIBRARY}", "-lcorelane"]
    program = tmp_path / "program"
    command = [compiler, *flags, *map(str, sources), "-o", str(program), *link]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")


def test_no_public_header_declares_what_the_library_hides():
    done = subprocess.run(
        ["nm", "-D", "--defined-only", str(LIBRARY / "libcorelane.so")], capture_output=True, text=True, check=True
    )
    exported = {line.split()[-1] for line in done.stdout.splitlines()}
    hidden = [f"{header}: {name}" for header in HEADERS for name in declared(header) if name not in exported]
    assert sum(len(declared(header)) for header in HEADERS) > 150
    assert not hidden, hidden


def test_the_example_of_timers_is_c(tmp_path):
    """Three lines in timer.h arm a timer, and say whose clock its deadline is of."""
    opening = (ROOT / "include" / "corelane" / "libos" / "timer.h").read_text().split("*/")[0]
    example = "\n".join(re.findall(r"^ \*   (\w.*;)$", opening, re.M))
    assert "cl_sched_now_ns(cl_runtime_sched(rt))" in example
    source = tmp_path / "example.c"
    source.write_text(
        "#include <corelane/libos/libos.h>\n"
        "int on(struct cl_runtime *rt, cl_timer_fn fn, void *arg)\n"
        f"{{\nstatic struct cl_timer timer;\n{example}\nreturn rc;\n}}\n"
    )
    flags = ["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "include")]
    done = subprocess.run(["gcc", *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_example_of_alarms_is_c(tmp_path):
    """The callback in wheel.h, with the object that it takes for granted."""
    opening = (ROOT / "include" / "corelane" / "libos" / "wheel.h").read_text().split("*/")[0]
    example = "\n".join(line[3:] for line in opening.splitlines() if line.startswith(" *   "))
    assert "cl_alarm_due(&o->alarm" in example
    source = tmp_path / "example.c"
    source.write_text(
        "#include <corelane/libos/libos.h>\n#include <corelane/libos/sched.h>\n#include <corelane/libos/spin.h>\n"
        "struct object {\nstruct cl_spin lock;\nstruct cl_alarm alarm;\n};\nvoid timed_out(struct object *o);\n"
        f"{example}\ncl_alarm_fn of_header = on_alarm;\n"
    )
    flags = ["-std=c11", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", "-I", str(ROOT / "include")]
    done = subprocess.run(["gcc", *flags, str(source)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
