"""eBPF without clang and without libbpf: assemble, write an ELF object, read one, load it, attach it.

    asm.py      instructions and labels to machine code
    btf.py      the type format that describes maps: builder and parser
    elf.py      writes a relocatable EM_BPF object from assembled code and map definitions
    object.py   reads an object (ours or clang's), checks it, and says what is wrong with it
    loader.py   creates the maps, relocates, loads with the verifier's words in the error, attaches; test runs
    steer.py    the XDP program that this package ships: application traffic to AF_XDP, the rest to Linux
    sys.{h,c}   bpf(2) itself

There are no threads here and nothing is pinned in bpffs: every kernel object lives as long as its descriptor, a program
is attached by a link, and closing the link (or the end of the process) detaches it. Start with steer.py.

Not dealt with: CO-RE relocations, map-in-map, pinning, BPF_PROG_TYPEs other than XDP. Each is refused with a reason.
"""
