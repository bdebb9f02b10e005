"""Builds the C core: one shared library of all C sources, and one thin cffi module a floor.

Needs gcc (or $CC) and nothing else. Objects and dependency files stay in build/obj/<variant>, so changing one C file
recompiles one object. The library, the cffi modules and the public headers land beside the Python files that use them:

    runtime/_lib/libcorelane.so            every C source of every floor
    runtime/_lib/libcorelane-posix.so      what is preloaded into programs of others (PRELOAD)
    runtime/_lib/corelane-run              the program that runs compiled services (LAUNCHER)
    runtime/_include/corelane/<floor>/*.h  the public headers (include/): what a C server compiles against
    runtime/_lib/pkgconfig, _lib/cmake     how pkg-config and CMake find both (packaging/)
    libos/_asyncio.abi3.so                 the event loop's C part, against CPython's limited API (EXTENSION)
    <floor>/_native.abi3.so                cffi bindings of that floor's headers, public and private

What cffi sees of a header is the text between the lines "// cffi: begin" and "// cffi: end".
"""

from __future__ import annotations

import concurrent.futures
import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext
from setuptools.command.sdist import sdist

ROOT = Path(__file__).resolve().parent
# Lower floors first: a cffi module includes the modules of the floors below it.
FLOORS = ("runtime", "drivers", "iokernel", "libos", "apps", "bench")
BELOW = {
    "runtime": (),
    "drivers": ("runtime",),
    "iokernel": ("runtime", "drivers"),
    "libos": ("runtime", "drivers"),
    "apps": ("runtime", "drivers", "libos"),
    "bench": ("runtime", "drivers", "iokernel", "libos", "apps"),
}
CFLAGS = shlex.split(
    "-std=gnu11 -O2 -g -fPIC -fvisibility=hidden -fno-semantic-interposition -ftls-model=initial-exec "
    "-fno-omit-frame-pointer -fno-strict-aliasing -fstack-clash-protection -pthread -Wall -Wextra -Werror "
    "-D_GNU_SOURCE -Iinclude"
)
# llhttp's sources, of Debian's package node-llhttp: without them there is no HTTP (apps/http/llhttp).
if Path("/usr/share/include/llhttp/llhttp.h").exists():
    CFLAGS += ["-isystem", "/usr/share/include/llhttp", "-idirafter", "/usr/share"]
# What a program that uses the library is compiled with; its guards count on the last (libos/sched/stack.c).
USER_CFLAGS = ("-D_GNU_SOURCE", "-pthread", "-fstack-clash-protection")
# Calls within the library go straight, not through the PLT: nobody interposes its functions.
LDFLAGS = shlex.split(
    "-shared -pthread -Wl,-z,defs -Wl,-z,now -Wl,-z,noexecstack -Wl,-Bsymbolic-functions "
    "-Wl,--version-script=runtime/library.map -Wl,-soname,libcorelane.so"
)


# Has libc's names for its functions, so it is a library of its own.
PRELOAD = Path("libos/posix/preload")
# An extension module of Python: nothing of Python's is in the library.
EXTENSION = Path("libos/asyncio/native")
# A program, and no part of the library.
LAUNCHER = Path("libos/service/launcher")


def c_sources() -> list[Path]:
    """Every C and assembly source of the library, relative to the root; never empty."""
    found = [p for floor in FLOORS for ext in ("*.c", "*.S") for p in (ROOT / floor).rglob(ext)]
    found = sorted(p.relative_to(ROOT) for p in found if "_include" not in p.parts and not p.name.startswith("_native"))
    found = [p for p in found if p.parent not in (PRELOAD, EXTENSION, LAUNCHER)]
    if not found:
        raise SystemExit("no C sources found: the source tree is incomplete (an sdist made without its .c files?)")
    return found


def public_headers() -> list[Path]:
    """The headers that are installed, relative to include/: corelane/<floor>/<name>.h."""
    return sorted(p.relative_to(ROOT / "include") for p in (ROOT / "include").rglob("*.h"))


def headers(floor: str) -> list[Path]:
    """Every header of a floor, relative to the root: its public ones and its own."""
    own = [p for p in (ROOT / floor).rglob("*.h") if "_include" not in p.parts]
    public = (ROOT / "include" / "corelane" / floor).glob("*.h")
    return sorted(p.relative_to(ROOT) for p in (*own, *public))


def packages() -> dict[str, str]:
    """Installed name -> folder of every package. All are under one umbrella: a user's own drivers/ shadows no flat
    name."""
    found = [p.parent.relative_to(ROOT) for floor in (*FLOORS, "cli") for p in (ROOT / floor).rglob("__init__.py")]
    found.append(Path("examples"))  # installed for people to copy
    return {".".join(["corelane", *folder.parts]): str(folder) for folder in sorted(found)}


def cdef_of(header: Path) -> str:
    """The part of a header meant for cffi, with what cffi's parser does not know taken out.

    Structs get a trailing "...": the compiler, not cffi, decides on offsets and sizes.
    """
    text = (ROOT / header).read_text()
    parts = re.findall(r"^// cffi: begin$(.*?)^// cffi: end$", text, re.M | re.S)
    out = "\n".join(parts)
    out = re.sub(r"/\*.*?\*/", "", out, flags=re.S)
    out = re.sub(r"//[^\n]*", "", out)
    out = re.sub(r"\bCL_API\b|\bCL_HOT\b", "", out)
    out = re.sub(r"\b(CL_ALIGNED|_Alignas|CL_PRINTF)\s*\((?:[^()]|\([^()]*\))*\)", "", out)
    out = re.sub(r"_Static_assert\s*\((?:[^()]|\((?:[^()]|\([^()]*\))*\))*\)\s*;", "", out)
    out = re.sub(r"^\s*#define\s+(\w+)\s+.*$", r"#define \1 ...", out, flags=re.M)
    out = re.sub(r"\[\s*[A-Z]\w*\s*\]", "[...]", out)  # arrays sized by a macro: the compiler knows how long
    return re.sub(r"(\bstruct\s+\w+\s*\{)(.*?)(\n\})", r"\1\2\n...;\3", out, flags=re.S)


def run(command: list[str]) -> None:
    """Run a compiler command; show what it printed and stop the build if it fails."""
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.stderr:
        sys.stderr.write(done.stderr)
    if done.returncode:
        raise SystemExit(f"failed: {shlex.join(command)}")


def stale(target: Path, depfile: Path, command_hash: str) -> bool:
    """Whether an object is older than anything that it was made from, or was made by another command."""
    if not target.exists() or not depfile.exists():
        return True
    stamp = depfile.with_suffix(".cmd")
    if not stamp.exists() or stamp.read_text() != command_hash:
        return True
    made = target.stat().st_mtime_ns
    words = depfile.read_text().replace("\\\n", " ").split(":", 1)[1].split()
    return any(not (ROOT / w).exists() or (ROOT / w).stat().st_mtime_ns > made for w in words)


def compile_one(source: Path, objdir: Path, flags: list[str], compiler: list[str] | None = None) -> tuple[Path, bool]:
    """Compile one source if it is stale; returns the object and whether it was compiled.

    Two processes may compile one source at once, each in a folder of its own: the later is taken.
    """
    target = objdir / (str(source).replace("/", "__") + ".o")
    depfile = target.with_suffix(".d")
    cc = compiler or shlex.split(os.environ.get("CC", "gcc"))
    # Relative paths: a copy of the tree may use what this one made.
    command = [*cc, *flags, "-MMD", "-MT", target.name, "-c", str(source), "-o"]
    digest = hashlib.sha256(shlex.join([*command, os.path.relpath(target, ROOT)]).encode()).hexdigest()
    if not stale(target, depfile, digest):
        return target, False
    with tempfile.TemporaryDirectory(prefix="new", dir=objdir) as folder:
        fresh = Path(folder) / target.name
        run([*command, os.path.relpath(fresh, ROOT)])
        stamp = fresh.with_suffix(".cmd")
        stamp.write_text(digest)
        for made in (fresh, fresh.with_suffix(".d"), stamp):  # a killed compiler leaves no half-written object behind
            made.replace(objdir / made.name)
    return target, True


def build_library(out: Path, objdir: Path) -> None:
    """Compile and link libcorelane.so into the folder `out`."""
    objdir.mkdir(parents=True, exist_ok=True)
    out.mkdir(parents=True, exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        done = list(pool.map(lambda s: compile_one(s, objdir, CFLAGS), c_sources()))
    library = out / "libcorelane.so"
    listing = "\n".join(str(o) for o, _ in done)
    linked = objdir / "linked"
    newest = max(o.stat().st_mtime_ns for o, _ in done)  # tests compile here, too
    old = not library.exists() or library.stat().st_mtime_ns < newest
    if old or not linked.exists() or linked.read_text() != listing:
        cc = shlex.split(os.environ.get("CC", "gcc"))
        run([*cc, *LDFLAGS, *(str(o) for o, _ in done), "-ldl", "-lm", "-o", str(library)])
        linked.write_text(listing)


def build_beside(folder: Path, target: Path, link: list[str], objdir: Path, flags: tuple[str, ...] = ()) -> None:
    """Compile what lies in a folder, and link it into `target`, beside libcorelane.so, which it uses."""
    sources = sorted(p.relative_to(ROOT) for p in (ROOT / folder).glob("*.c"))
    done = [compile_one(s, objdir, [*CFLAGS, *flags]) for s in sources]
    newest = max(o.stat().st_mtime_ns for o, _ in done)
    if not target.exists() or target.stat().st_mtime_ns < newest:
        cc = shlex.split(os.environ.get("CC", "gcc"))
        link = ["-pthread", "-Wl,-z,defs", "-Wl,-z,now", "-Wl,-z,noexecstack", "-Wl,-rpath,$ORIGIN", *link]
        objects = [str(o) for o, _ in done]
        run([*cc, *link, *objects, f"-L{target.parent}", "-lcorelane", "-ldl", "-o", str(target)])


def build_preload(lib: Path, objdir: Path) -> None:
    """libcorelane-posix.so. Its functions jump on to libc's, and keep no frame for that."""
    library = lib / "libcorelane-posix.so"
    link = ["-shared", f"-Wl,-soname,{library.name}"]
    build_beside(PRELOAD, library, link, objdir, ("-momit-leaf-frame-pointer",))


def build_launcher(lib: Path, objdir: Path) -> None:
    """corelane-run."""
    build_beside(LAUNCHER, lib / "corelane-run", [], objdir)


def link_module(module: Path, objects: list[Path], lib: Path) -> None:
    """Link a module of Python that stands beside runtime/ and uses libcorelane.so."""
    cc = shlex.split(os.environ.get("CC", "gcc"))
    link = ["-shared", "-pthread", f"-L{lib}", "-Wl,-rpath,$ORIGIN/../runtime/_lib", "-o", str(module)]
    run([*cc, *(str(o) for o in objects), *link, "-lcorelane"])


def install_headers(out: Path) -> None:
    """Copy the public headers, keeping their folders, so that they include each other as in the tree."""
    for header in public_headers():
        source, target = ROOT / "include" / header, out / header
        target.parent.mkdir(parents=True, exist_ok=True)
        if not target.exists() or target.read_bytes() != source.read_bytes():
            shutil.copyfile(source, target)
    for stale in {p.relative_to(out) for p in out.rglob("*.h")} - set(public_headers()):
        (out / stale).unlink()  # public once, and no more


def write_if_changed(target: Path, text: str) -> None:
    """Write a file, unless it says that already."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if not target.exists() or target.read_text() != text:
        target.write_text(text)


def install_packaging(lib: Path) -> None:
    """What has pkg-config and CMake find the headers and the library, beside the library."""
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    values = {"VERSION": version, "CFLAGS": " ".join(USER_CFLAGS), "CFLAGS_LIST": ";".join(USER_CFLAGS)}
    for template in sorted((ROOT / "packaging").glob("*.in")):
        text = template.read_text()
        for name, value in values.items():
            text = text.replace(f"@{name}@", value)
        folder = lib / "pkgconfig" if ".pc" in template.suffixes else lib / "cmake" / "corelane"
        write_if_changed(folder / template.stem, text)


def make_ffis() -> dict[str, object]:
    """One cffi builder a floor that has anything to bind."""
    from cffi import FFI

    ffis: dict[str, object] = {}
    includes: dict[str, str] = {}
    for floor in FLOORS:
        declared = [(h, cdef_of(h)) for h in headers(floor)]
        declared = [(h, text) for h, text in declared if text.strip()]
        if not declared:
            continue
        ffi = FFI()
        for lower in BELOW[floor]:
            if lower in ffis:
                ffi.include(ffis[lower])
        # Order headers so that what is included comes first.
        order = {str(h): i for i, (h, _) in enumerate(topological(declared))}
        declared.sort(key=lambda item: order[str(item[0])])
        ffi.cdef("\n".join(text for _, text in declared))
        includes[floor] = "".join(f'#include "{h}"\n' for h, _ in declared)
        preamble = "".join(includes.get(f, "") for f in (*BELOW[floor], floor))
        ffi.set_source(f"corelane.{floor}._native", preamble, py_limited_api=True, compiler_verbose=0)
        ffis[floor] = ffi
    return ffis


def topological(declared: list[tuple[Path, str]]) -> list[tuple[Path, str]]:
    """Headers after those that they include."""
    by_name = {str(h): (h, text) for h, text in declared}
    out: list[tuple[Path, str]] = []
    seen: set[str] = set()

    def visit(name: str) -> None:
        if name in seen or name not in by_name:
            return
        seen.add(name)
        header, _ = by_name[name]
        for mark, inc in re.findall(r'^#include (["<])([^">]+)[">]', (ROOT / header).read_text(), re.M):
            visit(f"include/{inc}" if mark == "<" else os.path.normpath(header.parent / inc))
        out.append(by_name[name])

    for name in sorted(by_name):
        visit(name)
    return out


def check_interpreter() -> None:
    """SystemExit where the modules cannot be built."""
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise SystemExit(
            "corelane's modules are of Python's limited API (abi3), which free-threaded Python does not have: "
            "build it with an ordinary interpreter, and run a process or an event loop for each core"
        )


class BuildNative(build_ext):
    """Builds the library once, then the cffi module of each floor."""

    def run(self) -> None:
        check_interpreter()
        inplace = bool(self.inplace)
        base = ROOT if inplace else Path(self.build_lib).resolve() / "corelane"
        objdir = ROOT / "build" / "obj" / "plain"
        lib = base / "runtime" / "_lib"
        build_library(lib, objdir)
        build_preload(lib, objdir)
        build_launcher(lib, objdir)
        install_headers(base / "runtime" / "_include")
        install_packaging(lib)
        for floor, ffi in make_ffis().items():
            self.build_module(floor, ffi, base / floor, lib, objdir)
        self.build_extension_module(base / "libos", lib, objdir)

    def build_extension_module(self, out: Path, lib: Path, objdir: Path) -> None:
        """Compile and link corelane.libos._asyncio."""
        sources = sorted(p.relative_to(ROOT) for p in (ROOT / EXTENSION).glob("*.c"))
        flags = [*CFLAGS, "-DPy_LIMITED_API=0x030B0000", "-isystem", sysconfig.get_paths()["include"]]
        done = [compile_one(s, objdir, flags) for s in sources]
        module = out / "_asyncio.abi3.so"
        newest = max(o.stat().st_mtime_ns for o, _ in done)
        if not module.exists() or module.stat().st_mtime_ns < newest:
            link_module(module, [o for o, _ in done], lib)

    def build_module(self, floor: str, ffi: object, out: Path, lib: Path, objdir: Path) -> None:
        """Emit, compile and link corelane.<floor>._native."""
        source = ROOT / "build" / "cffi" / f"{floor}_native.c"
        source.parent.mkdir(parents=True, exist_ok=True)
        fresh = source.with_suffix(".new")
        ffi.emit_c_code(str(fresh))  # type: ignore[attr-defined]
        if not source.exists() or source.read_bytes() != fresh.read_bytes():
            shutil.copyfile(fresh, source)
        flags = [f for f in CFLAGS if f not in ("-Wall", "-Wextra", "-Werror")]
        flags += ["-w", "-DPy_LIMITED_API=0x030B0000", f"-I{sysconfig.get_paths()['include']}", "-I."]
        target, compiled = compile_one(source.relative_to(ROOT), objdir, flags)
        out.mkdir(parents=True, exist_ok=True)
        module = out / "_native.abi3.so"
        if compiled or not module.exists():
            link_module(module, [target], lib)

    def get_outputs(self) -> list[str]:
        base = Path(self.build_lib) / "corelane"
        made = {"_lib", "_include"}
        return [str(p) for p in base.rglob("*") if p.is_file() and (made & set(p.parts) or p.suffix == ".so")]

    def get_output_mapping(self) -> dict[str, str]:
        return {}


class Sdist(sdist):
    """An sdist without its C sources builds an empty library: refuse to make one."""

    def run(self) -> None:
        c_sources()
        super().run()


if __name__ == "__main__":  # the tests import this file for its list of sources and its compile step
    setup(
        packages=list(packages()),
        package_dir=packages(),
        ext_modules=[
            Extension(f"corelane.{name}", sources=[], py_limited_api=True)
            for name in (*(f"{floor}._native" for floor in FLOORS), "libos._asyncio")
        ],
        cmdclass={"build_ext": BuildNative, "sdist": Sdist},
        options={"bdist_wheel": {"py_limited_api": "cp311"}},
    )
