"""The ELF object that we write, as others read it; objects of others, as we read them; refusals with their reasons."""

from __future__ import annotations

import io
import os
import shutil
import struct
import subprocess
from pathlib import Path

import pytest
from cltest import open_descriptors
from elftools.elf.elffile import ELFFile

from corelane.drivers.bpf import loader, steer
from corelane.drivers.bpf.asm import R0, R1, R2, R10, Assembler, Helper
from corelane.drivers.bpf.btf import DATASEC, Btf
from corelane.drivers.bpf.elf import MapDef, write_object
from corelane.drivers.bpf.object import read_object
from corelane.runtime.errors import CorelaneError

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: loading eBPF takes CAP_BPF and CAP_NET_ADMIN")
CLANG = shutil.which("clang-14") or shutil.which("clang")
needs_clang = pytest.mark.skipif(CLANG is None, reason="needs clang to make a foreign object: apt-get install clang")
OBJDUMP = shutil.which("llvm-objdump-14") or shutil.which("llvm-objdump")

MACROS = """
#define SEC(name) __attribute__((section(name), used))
#define __uint(name, val) int (*name)[val]
#define __type(name, val) typeof(val) *name
typedef unsigned int u32; typedef unsigned long long u64; typedef unsigned char u8;
struct xdp_md { u32 data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex; };
static void *(*lookup)(void *map, const void *key) = (void *)1;
static long (*redirect_map)(void *map, u64 key, u64 flags) = (void *)51;
char _license[] SEC("license") = "GPL";
"""
FOREIGN = (
    MACROS
    + """
struct pair { u32 a; u64 b; };
struct { __uint(type, 17); __uint(max_entries, 4); __type(key, u32); __type(value, u32); } xsks SEC(".maps");
struct { __uint(type, 1); __uint(max_entries, 7); __type(key, u32); __type(value, struct pair); __uint(map_flags, 1); }
    table SEC(".maps");
const volatile u32 limit = 100;
u64 seen = 5;
static __attribute__((noinline)) int grade(u32 length) { return length > limit ? 1 : 2; }
SEC("xdp") int first(struct xdp_md *m) {
    seen++;
    u32 key = 3;
    struct pair *p = lookup(&table, &key);
    if (p)
        return p->a;
    return grade(m->data_end - m->data);
}
SEC("xdp/second") int second(struct xdp_md *m) { return redirect_map(&xsks, m->rx_queue_index, 2); }
"""
)


def compile_object(tmp_path: Path, source: str, *flags: str) -> Path:
    assert CLANG is not None
    (tmp_path / "x.c").write_text(source)
    out = tmp_path / "x.o"
    command = [CLANG, "-target", "bpf", "-O2", "-g", *flags, "-c", str(tmp_path / "x.c"), "-o", str(out)]
    subprocess.run(command, check=True)
    return out


def small(**maps: MapDef) -> bytes:
    a = Assembler()
    for name in maps:
        a.load_map(R1, name)
    a.move(R0, 2)
    a.exit()
    return write_object(a.assemble(), maps, function="prog")


@pytest.mark.parametrize("which", ["addresses", "all", "raw"])
def test_our_object_is_a_proper_elf_file(which):
    elf = ELFFile(io.BytesIO(steer.steer_object(which)))
    assert elf.header["e_machine"] == "EM_BPF"
    assert elf.header["e_type"] == "ET_REL"
    assert [s.name for s in elf.iter_sections()] == [
        "", "xdp", ".maps", "license", ".BTF", ".relxdp", ".symtab", ".strtab"
    ]  # fmt: skip
    assert elf.get_section_by_name("license").data() == b"Dual MIT/GPL\0"
    text = elf.get_section_by_name("xdp").data()
    symbols = {s.name: s for s in elf.get_section_by_name(".symtab").iter_symbols()}
    assert symbols[steer.FUNCTION]["st_info"]["type"] == "STT_FUNC"
    assert symbols[steer.FUNCTION]["st_size"] == len(text)
    relocations = list(elf.get_section_by_name(".relxdp").iter_relocations())
    assert relocations
    for r in relocations:
        assert r["r_info_type"] == 1
        assert text[r["r_offset"]] == 0x18, "only 64-bit loads refer to maps"


def test_map_definitions_go_through_btf_unchanged():
    maps = {"a": MapDef(1, 4, 8, 100, 1), "b_map": MapDef(17, 4, 4, 1), "c": MapDef(11, 8, 16, 4096, 1)}
    read = read_object(small(**maps))
    assert read.maps == maps
    assert read.license == "Dual MIT/GPL"
    assert [r.target for r in read.program().relocations] == list(maps)
    btf = Btf(ELFFile(io.BytesIO(small(**maps))).get_section_by_name(".BTF").data())
    section = next(t for t in btf.types if t.kind == DATASEC)
    assert [size for _, _, size in section.members()] == [40, 40, 40]


@pytest.mark.skipif(OBJDUMP is None, reason="needs llvm-objdump: apt-get install llvm")
def test_llvm_disassembles_our_object(tmp_path):
    (tmp_path / "x.o").write_bytes(steer.steer_object("raw"))
    command = [str(OBJDUMP), "-dr", "--no-show-raw-insn", str(tmp_path / "x.o")]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    listing = done.stdout.split("<corelane_steer>:")[1]
    lines = [" ".join(line.split()[1:]) for line in listing.splitlines() if line.strip()]
    assert lines == ["r2 = *(u32 *)(r1 + 16)", "r1 = 0 ll", "R_BPF_64_64 xsks", "r3 = 2", "call 51", "exit"]


@needs_clang
def test_a_clang_object_is_read(tmp_path):
    read = read_object(compile_object(tmp_path, FOREIGN))
    assert read.maps == {"xsks": MapDef(17, 4, 4, 4), "table": MapDef(1, 4, 16, 7, 1)}
    assert set(read.programs) == {"first", "second"}
    assert read.programs["second"].section == "xdp/second"
    assert {r.kind for r in read.programs["first"].relocations} == {"map", "value", "call"}
    assert read.data[".rodata"] == struct.pack("<I", 100)
    assert read.data[".data"] == struct.pack("<Q", 5)
    with pytest.raises(CorelaneError, match="several programs: name one of: first, second"):
        read.program()
    with pytest.raises(CorelaneError, match="no program 'third'"):
        read.program("third")


@needs_root
@needs_clang
def test_a_clang_object_with_globals_and_functions_runs(tmp_path):
    read = read_object(compile_object(tmp_path, FOREIGN))
    with loader.load(read, "first") as loaded:
        assert loaded.test_run(bytes(60)).verdict == 2
        assert loaded.test_run(bytes(101)).verdict == 1
        assert struct.unpack("<Q", loaded.maps[".data"].lookup(0) or b"") == (7,)
        loaded.maps["table"].update(3, struct.pack("<IxxxxQ", 4, 0))
        assert loaded.test_run(bytes(60)).verdict == 4
        assert list(loaded.maps["table"].keys()) == [struct.pack("<I", 3)]
        assert loaded.maps["table"].delete(3)
        assert not loaded.maps["table"].delete(3)
        assert loaded.maps["table"].lookup(3) is None
        with pytest.raises(loader.BpfError, match=r"\.rodata"):
            loaded.maps[".rodata"].update(0, struct.pack("<I", 1))  # frozen
    assert all(m.fd == -1 for m in loaded.maps.values())


def patched(at: int, value: bytes) -> bytes:
    data = bytearray(small(m=MapDef(1, 4, 4, 1)))
    data[at : at + len(value)] = value
    return bytes(data)


def with_relocation_type(kind: int) -> bytes:
    data = bytearray(small(m=MapDef(1, 4, 4, 1)))
    rel = ELFFile(io.BytesIO(bytes(data))).get_section_by_name(".relxdp")
    struct.pack_into("<I", data, rel["sh_offset"] + 8, kind)
    return bytes(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "not a usable ELF object"),
        (b"\x7fELF", "not a usable ELF object"),
        (b"GIF89a" * 100, "not a usable ELF object"),
        (patched(18, struct.pack("<H", 62)), "machine is EM_X86_64, not EM_BPF: compile with `clang -target bpf`"),
        (patched(16, struct.pack("<H", 3)), "file type is ET_DYN"),
        (small(m=MapDef(1, 4, 4, 1)).replace(b"xdp\0", b"tc1\0"), 'section "xdp" is missing'),
        (small(m=MapDef(1, 4, 4, 1)).replace(b"license\0", b"licence\0"), 'section "license" is missing'),
        (small(m=MapDef(1, 4, 4, 1)).replace(b".BTF\0", b".BTX\0"), "without .BTF: compile with -g"),
        (small(m=MapDef(1, 4, 4, 1)).replace(b".maps\0", b"maps\0\0"), "legacy map definitions"),
        (small(m=MapDef(0, 4, 4, 1)), "map 'm' has no type"),
        (small(m=MapDef(1, 4, 4, 1)).replace(b"map_flags\0", b"map_flag!\0"), "attribute 'map_flag!' is not supported"),
        (with_relocation_type(3), "relocation type 3 at byte 0 against 'm'"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_bad_objects_are_refused_with_the_reason(data, reason):
    with pytest.raises(CorelaneError, match=reason.replace("(", r"\(")):
        read_object(data)


@needs_clang
@pytest.mark.parametrize(
    ("source", "flags", "reason"),
    [
        (MACROS + 'SEC("xdp.frags") int f(struct xdp_md *m) { return 2; }', (), "single-buffer frames"),
        (MACROS + 'int f(struct xdp_md *m); SEC("xdp") int g(struct xdp_md *m) { return f(m); }', (), "is not defined"),
        (
            MACROS + "struct t { u32 a; u32 b; } __attribute__((preserve_access_index));"
            'SEC("xdp") int g(struct xdp_md *m) { return ((struct t *)(long)m->data)->b; }',
            (),
            "CO-RE relocations",
        ),
        (
            MACROS + "struct { __uint(type, 1); __type(key, u32); __type(value, u32); __uint(max_entries, 1);"
            '__uint(pinning, 1); } m SEC(".maps"); SEC("xdp") int g(void *x) { u32 k = 0; return !lookup(&m, &k); }',
            (),
            "attribute 'pinning' is not supported",
        ),
        (FOREIGN, ("-target", "bpfeb"), "not a 64-bit little-endian object"),
    ],
)
def test_bad_clang_objects_are_refused_with_the_reason(tmp_path, source, flags, reason):
    with pytest.raises(CorelaneError, match=reason):
        read_object(compile_object(tmp_path, source, *flags))


def test_every_truncation_of_an_object_is_refused_or_read():
    whole = steer.steer_object("raw")
    for size in range(len(whole)):
        with pytest.raises(CorelaneError):
            read_object(whole[:size])


def test_a_flipped_byte_never_raises_anything_but_our_error(rng):
    whole = steer.steer_object("raw")
    refused = 0
    for _ in range(600):
        data = bytearray(whole)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            read_object(bytes(data))
        except CorelaneError:
            refused += 1
    assert refused > 20


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(CorelaneError, match=r"gone\.o: No such file"):
        read_object(tmp_path / "gone.o")


def test_code_that_names_an_unknown_map_is_not_written():
    a = Assembler()
    a.load_map(R1, "nowhere")
    a.exit()
    with pytest.raises(CorelaneError, match="refers to map 'nowhere'; defined are m"):
        write_object(a.assemble(), {"m": MapDef(1, 4, 4, 1)}, function="f")


@needs_root
@pytest.mark.root
def test_a_rejection_by_the_verifier_shows_its_log():
    a = Assembler()
    a.load("u32", R2, R1, 0)
    a.load("u8", R0, R2, 0)  # without looking at data_end
    a.exit()
    obj = read_object(write_object(a.assemble(), {}, function="rude"))
    with pytest.raises(loader.BpfError, match="the kernel refuses program 'rude'") as caught:
        loader.load(obj)
    assert "invalid access to packet" in caught.value.log
    assert "invalid access to packet" in str(caught.value)


@needs_root
@pytest.mark.root
def test_maps_check_their_keys_and_say_what_fails():
    m = loader.Map("tiny", MapDef(loader.HASH, 4, 4, 1))
    m.update(1, 2)
    assert m.lookup(1) == b"\2\0\0\0"
    with pytest.raises(loader.BpfError, match="map 'tiny'"):
        m.update(2, 2)  # full
    with pytest.raises(CorelaneError, match="key of 2 bytes"):
        m.update(b"xx", 1)
    with pytest.raises(CorelaneError, match="value of 1 bytes"):
        m.update(1, b"x")
    m.close()
    m.close()
    with pytest.raises(loader.BpfError, match="cannot create eBPF map 'odd'"):
        loader.Map("odd", MapDef(loader.ARRAY, 3, 4, 1))


@needs_root
@pytest.mark.root
def test_a_section_that_cannot_be_filled_leaves_no_map_open(monkeypatch):
    def refuse(self, key, value):
        raise loader.BpfError("no update today")

    monkeypatch.setattr(loader.Map, "update", refuse)
    before = open_descriptors()
    with pytest.raises(loader.BpfError, match="no update today"):
        loader._variables(".data", b"1234")
    assert open_descriptors() == before


@needs_root
@pytest.mark.root
def test_helpers_see_the_relocated_maps():
    maps = {"one": MapDef(loader.ARRAY, 4, 4, 2), "two": MapDef(loader.ARRAY, 4, 4, 2)}
    a = Assembler()
    a.store("u32", R10, -4, 1)
    a.load_map(R1, "two")
    a.move(R2, R10)
    a.alu("+", R2, -4)
    a.call(Helper.MAP_LOOKUP_ELEM)
    a.jump_if(R0, "==", 0, "end")
    a.load("u32", R0, R0, 0)
    a.label("end")
    a.exit()
    with loader.load(read_object(write_object(a.assemble(), maps, function="peek"))) as loaded:
        loaded.maps["two"].update(1, 77)
        assert loaded.test_run(bytes(14)).verdict == 77
