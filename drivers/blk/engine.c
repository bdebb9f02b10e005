/* See engine.h: what the file device and its engines share. */
#include "engine.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

int cl_blk_file_refuse(char *err, int error, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    if (err)
        vsnprintf(err, 256, format, args);
    va_end(args);
    return error;
}

void cl_blk_file_remark(struct cl_blk_file *f, const char *what)
{
    size_t used = strlen(f->info.why);
    snprintf(f->info.why + used, sizeof f->info.why - used, "%s%.150s", used ? "; " : "", what);
}

void cl_blk_file_delete(struct cl_blk_file *f)
{
    flock(f->fd, LOCK_UN); /* another descriptor of the same opening may live on */
    close(f->fd);
    free(f);
}
