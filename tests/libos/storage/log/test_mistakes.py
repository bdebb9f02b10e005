"""Mistakes in the log, made on purpose in a copy of a source file.

Cutting a run after every sector finds most, and what no cut shows, or only one in many runs, a situation made step by
step. What an opening does not write again shows only when the power goes after a process ended without it: the model
finds that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from cltest import CBuild, ProgramFailed
from cltest.planted import build_with, planted

C = "tests/libos/storage/log/c"
CUTS = f"{C}/cuts.c"
MODEL = f"{C}/model.c"
LOG = "libos/storage/log"
SEEDS = 60

# file, old text, new text
MISTAKES = {
    "acknowledges flushes that are not done": ("append.c", "if (!f->done)", "if (!f->done && f->lsn % 5)"),
    "takes records without their checksums": (
        "view.c",
        "r->crc != cl_log_record_crc(seed, r)",
        "r->crc + cl_log_record_crc(seed, r) == 0",
    ),
    "leaves a record too much when it truncates": ("view.c", "cut(v, r->index);", "cut(v, r->index + 1);"),
    "forgets that it began anew": (
        "view.c",
        "v->first_index = cl_max(v->first_index, r->index);",
        "(void)v;",
    ),
    "says that a trim is durable before it is": (
        "super.c",
        "cl_log_view_trim(&log->view, first_kept);",
        "{\n            cl_log_view_trim(&log->view, first_kept);\n"
        "            cl_log_done(log, op, 0);\n            op = NULL;\n        }",
    ),
    "leaves the votes out of superblocks": (
        "super.c",
        "out->meta_bytes = log->super.meta_op->bytes;",
        "out->meta_bytes = 0;",
    ),
    "acknowledges votes that one superblock has": ("super.c", "++s->meta_slots < 2", "++s->meta_slots < 1"),
    "acknowledges a trim that one superblock has": (
        "super.c",
        "struct cl_log_op *ops = s->half;\n    s->half = s->riding;",
        "struct cl_log_op *ops = s->riding;\n    s->half = NULL;",
    ),
    "copies what is not kept any more": ("repack.c", "s->lsn == lsn && ", "s->lsn + lsn && "),
    "takes the first record's place for the oldest": (
        "view.c",
        "if (v->spans[i].lsn < head->lsn)",
        "if (v->spans[i].lsn < head->lsn && v->room == 0)",
    ),
    "frees what was copied before that is acknowledged": (
        "super.c",
        "if (!cl_log_view_head(v, &out->head_lsn, &out->head_place)) {",
        "if (log->repack.phase == REPACK_FREE || !cl_log_view_head(v, &out->head_lsn, &out->head_place)) {",
    ),
    "commits a snapshot of another length": (
        "super.c",
        "out->snapshot_length = n->bytes;",
        "out->snapshot_length = n->bytes / 2;",
    ),
}


# file, old text, new text, the program that finds it, what it is to do, what it says
STEPS = {
    "writes over what the older superblock needs": (
        "super.c",
        "log->head_place = s->now.head_place;",
        "log->head_place = s->block->head_place;",
        "limits.c",
        ("older",),
        "needs what is free",
    ),
    "copies while a truncation is in flight": (
        "repack.c",
        "if (log->cut_lsn > log->view.lsn)",
        "if (log->error)",
        "repacked.c",
        ("given_up",),
        "does not follow",
    ),
    "copies what was truncated since it was read": (
        "repack.c",
        "if (is_kept(log, d, u->lsn, d->crc)) {",
        "if (is_kept(log, d, u->lsn, d->crc) || d->index) {",
        "repacked.c",
        ("given_up",),
        "does not follow",
    ),
    "takes copies in after what gives them up": (
        "view.c",
        "        if (copies.count && move_to(v, &copies))\n            return -ENOMEM;\n        copies.count = 0;\n",
        "",
        "repacked.c",
        ("given_up",),
        "is one that was given up",
    ),
    "copies before both superblocks say so": (
        "repack.c",
        "if (log->super.now.version != CL_LOG_VERSION_COPIES || !super_at_rest(log))",
        "if (log->error)",
        "repacked.c",
        ("version",),
        "has copies",
    ),
    "keeps no room for truncations and copies": (
        "append.c",
        "use == CL_LOG_FOR_DATA  ? reserve",
        "use == CL_LOG_FOR_DATA  ? 0 * reserve",
        "limits.c",
        ("reserve",),
        "must still take a truncation",
    ),
    "makes a good record of a damaged one when it copies": (
        "repack.c",
        "d->crc != cl_log_record_crc(seed, d)",
        "d->crc + cl_log_record_crc(seed, d) == 0",
        "rot.c",
        ("copied", 1),
        "is damaged: 1",
    ),
    "says that it has no copies once it has grown": (
        "grow.c",
        "if (s->version != CL_LOG_VERSION_COPIES)",
        "if (s->version)",
        "grow.c",
        (),
        "has copies",
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_mistakes_are_found_step_by_step(name: str, tmp_path: Path) -> None:
    file, old, new, program, what, says = STEPS[name]
    run = build_with(CBuild("plain"), tmp_path, f"{C}/{program}", planted(tmp_path, f"{LOG}/{file}", [(old, new)]))
    with pytest.raises(ProgramFailed, match=says):
        run(1, *what)


@pytest.mark.parametrize("name", MISTAKES)
def test_mistakes_are_found_by_cuts(name: str, tmp_path: Path) -> None:
    file, old, new = MISTAKES[name]
    cuts = build_with(CBuild("plain"), tmp_path, CUTS, planted(tmp_path, f"{LOG}/{file}", [(old, new)]))
    for seed in range(1, 1 + SEEDS):
        try:
            cuts(seed, 1000, 4)
        except ProgramFailed as error:
            if re.search(r"what no number of operations leaves|damage at offset", str(error)):
                return
    pytest.fail(f"{SEEDS} runs did not find it")


AGAIN = {
    "writes nothing again": (
        "if (r->acknowledged_lsn >= log->view.lsn ||",
        "if (r->acknowledged_lsn <= log->view.lsn ||",
    ),
    "writes fewer flushes again than may be missing": (
        "if (r->again_next.lsn <= r->acknowledged_lsn + 1)",
        "if (r->again_next.lsn)",
    ),
}


@pytest.mark.parametrize("name", AGAIN)
def test_mistakes_are_found_by_the_model(name: str, tmp_path: Path) -> None:
    mistake = planted(tmp_path, f"{LOG}/again.c", [AGAIN[name]])
    model = build_with(CBuild("plain"), tmp_path, MODEL, mistake)
    for seed in range(1, SEEDS):
        try:
            model(seed, 30_000, 512 << 10, 4)
        except ProgramFailed as error:
            if re.search(r"no number of operations|damage at offset", str(error)):
                return
    pytest.fail(f"{SEEDS} runs did not find it")
