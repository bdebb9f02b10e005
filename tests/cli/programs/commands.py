"""Runs command lines of corelane (a JSON list on stdin), each in a child of its own with the standard streams that it
is to have, and prints a JSON list of {"code", "out", "err"}. Forking saves the time that starting Python takes, and
importing what the subcommands import.

A command line is {"args": [...], "out": "pipe", "closed" or the path of a file, "cwd": where}.
"""

import gc
import importlib
import json
import os
import sys
import tempfile
from typing import Any

import corelane.libos  # noqa: F401  once for all of them
from corelane.cli import main

for name in main.COMMANDS:
    importlib.import_module(f"corelane.cli.{name.replace('-', '_')}")
gc.freeze()  # a child that looks through what it shares copies it


def child(case: dict[str, Any], out: int, err: int) -> None:
    if case.get("cwd"):
        os.chdir(case["cwd"].encode(errors="surrogateescape"))
    os.dup2(err, 2)
    to = case.get("out", "pipe")
    if to == "closed":  # as Python finds it then
        os.close(1)
        sys.stdout = None  # type: ignore[assignment]
    else:
        os.dup2(out if to == "pipe" else os.open(to, os.O_WRONLY), 1)
    words = (word.encode(errors="surrogateescape") for word in case["args"])
    sys.argv = ["corelane", *map(os.fsdecode, words)]
    sys.exit(main.main())


done = []
for case in json.load(sys.stdin):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        pid = os.fork()
        if not pid:
            child(case, out.fileno(), err.fileno())
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        said = []
        for file in (out, err):
            file.seek(0)
            said.append(file.read().decode(errors="surrogateescape"))
    done.append({"code": code, "out": said[0], "err": said[1]})
print(json.dumps(done))
