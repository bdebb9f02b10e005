/* What an engine of the file device (drivers/blk/engine.h) needs of drivers/blk/engine.c, without a file. */
#ifndef TESTS_BLK_FILE_FAKE_H
#define TESTS_BLK_FILE_FAKE_H

#include "drivers/blk/engine.h"

#include <stdlib.h>

#define DEPTH 8
#define BLOCK 4096

static unsigned files_deleted;

void cl_blk_file_delete(struct cl_blk_file *f)
{
    files_deleted++;
    free(f);
}

void cl_blk_file_remark(struct cl_blk_file *f, const char *what)
{
    (void)f;
    (void)what;
}

int cl_blk_file_refuse(char *err, int error, const char *format, ...)
{
    (void)err;
    (void)format;
    return error;
}

static struct cl_blk_file *file_new(void)
{
    struct cl_blk_file *f = calloc(1, sizeof *f);
    files_deleted = 0;
    f->fd = -1;
    f->blk =
        (struct cl_blk){.n_queues = 1, .depth = DEPTH, .bytes = 64 * BLOCK, .block_bytes = BLOCK, .atomic_bytes = 512};
    return f;
}

#endif
