"""Struct layouts are the same for C, cffi, numpy and the debug information of the library that was linked."""

from __future__ import annotations

import functools
import importlib
import os
import re
import shlex
import subprocess

import pytest
from cltest.cbuild import ROOT, setup_py

from corelane.runtime import layout
from corelane.runtime._native import ffi as runtime_ffi
from corelane.runtime.errors import CorelaneError

Layout = tuple[int, dict[str, int]]


@functools.cache
def floors():
    """Floors that bind anything, with their ffi."""
    out = {}
    for floor in setup_py().make_ffis():
        out[floor] = importlib.import_module(f"corelane.{floor}._native").ffi
    return out


@functools.cache
def cffi_layouts() -> dict[str, dict[str, Layout]]:
    """floor -> struct name -> (size, offset of every field)."""
    out: dict[str, dict[str, Layout]] = {}
    for floor, ffi in floors().items():
        out[floor] = {}
        for name in ffi.list_types()[1]:
            ctype = ffi.typeof(f"struct {name}")
            if layout.complete(ffi, ctype):
                out[floor][name] = (ffi.sizeof(ctype), {n: f.offset for n, f in ctype.fields})
    return out


def all_layouts() -> dict[str, Layout]:
    """Those of all floors together."""
    return {name: layout for structs in cffi_layouts().values() for name, layout in structs.items()}


def test_there_is_something_to_compare():
    assert {"cl_desc", "cl_ring_tx", "cl_nic", "cl_frame", "cl_clock", "cl_hist"} <= set(all_layouts())


def test_c_agrees_with_cffi(c_program):
    includes = {h for f in setup_py().FLOORS for h in setup_py().headers(f) if setup_py().cdef_of(h).strip()}
    lines = [f'#include "{h}"' for h in sorted(includes)] + ["#include <stdio.h>", "int main(void)", "{"]
    for name, (_, fields) in sorted(all_layouts().items()):
        lines.append(f'    printf("{name} %zu\\n", sizeof(struct {name}));')
        lines += [f'    printf("{name}.{f} %zu\\n", offsetof(struct {name}, {f}));' for f in fields]
    source = ROOT / "build" / "ctest" / "layout.c"
    source.parent.mkdir(parents=True, exist_ok=True)
    text = "\n".join([*lines, "    return 0;", "}", ""])
    if not source.exists() or source.read_text() != text:
        source.write_text(text)
    said = dict(line.split() for line in c_program(str(source.relative_to(ROOT)), sources=[])().splitlines())
    for name, (size, fields) in all_layouts().items():
        assert int(said[name]) == size, name
        for field, offset in fields.items():
            assert int(said[f"{name}.{field}"]) == offset, f"{name}.{field}"


def test_numpy_agrees_with_cffi():
    for floor, ffi in floors().items():
        for name, (size, fields) in cffi_layouts()[floor].items():
            dtype = layout.dtype(ffi, f"struct {name}")
            assert dtype.itemsize == size, name
            assert dtype.fields is not None
            assert {n: entry[1] for n, entry in dtype.fields.items()} == fields, name


ENTRY = re.compile(r" <(\d+)><\w+>: Abbrev Number: \d+ \(DW_TAG_(\w+)\)")
ATTRIBUTE = re.compile(r" +<\w+> +DW_AT_(name|byte_size|data_member_location) *:.* (\S+)")


def dwarf_layouts() -> dict[str, list[Layout]]:
    """struct name -> every definition of it that a compilation unit of libcorelane.so saw.

    By readelf and grep: a reader in Python takes ten seconds for what its list says in one.
    """
    library = ROOT / "runtime" / "_lib" / "libcorelane.so"
    # Of what lies deeper than members, and of all but structs at the top, there is much more than of these.
    listed = f"readelf -W --debug-dump=info --dwarf-depth=3 {shlex.quote(str(library))}"
    wanted = r"^ <1><|^ <2>.*DW_TAG_member|DW_AT_(name|byte_size|data_member_location)"
    command = ["bash", "-o", "pipefail", "-c", f"{listed} | grep -aE {shlex.quote(wanted)}"]
    said = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | {"LC_ALL": "C"}).stdout
    structs: list[tuple[dict[str, str], list[dict[str, str]]]] = []
    entry: dict[str, str] = {}  # whose attributes come
    in_struct = False
    for line in said.splitlines():
        if begins := ENTRY.match(line):
            depth, tag, entry = begins[1], begins[2], {}
            if depth == "1":
                in_struct = tag == "structure_type"
                if in_struct:
                    structs.append((entry, []))
            elif in_struct and tag == "member":
                structs[-1][1].append(entry)
        elif in_struct and (attribute := ATTRIBUTE.match(line)):
            entry[attribute[1]] = attribute[2]
    out: dict[str, list[Layout]] = {}
    for struct, members in structs:
        if struct.keys() >= {"name", "byte_size"}:
            # Unions' and bit fields have no place.
            placed = [m for m in members if m.keys() >= {"name", "data_member_location"}]
            fields = {m["name"]: int(m["data_member_location"], 0) for m in placed}
            out.setdefault(struct["name"], []).append((int(struct["byte_size"], 0), fields))
    return out


def test_dwarf_agrees_with_cffi():
    """What was compiled into the library, unit by unit: two units with different ideas of a struct would show here."""
    dwarf = dwarf_layouts()
    compared = 0
    for name, (size, fields) in all_layouts().items():
        for got_size, got_fields in dwarf.get(name, []):
            assert got_size == size, name
            assert got_fields == fields, name
            compared += 1
    assert compared > 20


def test_view_is_the_same_memory():
    ring = runtime_ffi.new("struct cl_desc[4]")
    array = layout.view(runtime_ffi, ring, 4)
    ring[2].payload = 77
    assert array["payload"].tolist() == [0, 0, 77, 0]
    array["word"][3] = 2**63
    assert ring[3].word == 2**63
    one = runtime_ffi.new("struct cl_clock *", {"hz": 5})
    assert layout.view(runtime_ffi, one)["hz"].tolist() == [5]


def test_arrays_pointers_and_scalars():
    timeline = layout.dtype(runtime_ffi, "struct cl_timeline")
    assert timeline["steps"].shape == (256,)
    assert layout.dtype(runtime_ffi, "struct cl_parker")["word"].str == "<u8"
    kinds = {"uint8_t": "|u1", "int64_t": "<i8", "double": "<f8", "bool": "|b1", "char": "|S1", "void *": "<u8"}
    assert {c: layout.dtype(runtime_ffi, c).str for c in kinds} == kinds


def test_opaque_structs_are_refused():
    with pytest.raises(CorelaneError, match="no layout"):
        layout.dtype(runtime_ffi, "struct cl_pool")


def test_headers_are_installed_beside_the_library():
    include = ROOT / "runtime" / "_include"
    for header in setup_py().public_headers():
        assert (include / header).read_bytes() == (ROOT / "include" / header).read_bytes(), "run `make build`"
    assert (include / "corelane" / "runtime" / "base.h").exists()
