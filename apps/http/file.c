/* See file.h. */
#include "file.h"
#include "date.h"
#include "types.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct cl_http_file *cl_http_file_new(const struct stat *st, const char *path, bool with_data)
{
    size_t size = (size_t)st->st_size;
    struct cl_http_file *f = malloc(sizeof *f + (with_data ? size : 0));
    if (!f)
        return NULL;
    *f = (struct cl_http_file){.refs = 1,
                               .size = size,
                               .modified_s = st->st_mtim.tv_sec,
                               .modified = st->st_mtim,
                               .changed = st->st_ctim,
                               .device = st->st_dev,
                               .inode = st->st_ino,
                               .fd = -1,
                               .data = with_data ? f->bytes : NULL,
                               .type = cl_http_type_of(path)};
    char date[CL_HTTP_DATE_BYTES + 1] = "";
    cl_http_date_write(date, f->modified_s);
    f->etag_len = (uint16_t)snprintf(
        f->etag, sizeof f->etag, "\"%lx-%lx-%llx\"", (unsigned long)st->st_ino, (unsigned long)size,
        (unsigned long long)st->st_mtim.tv_sec * 1000000000ull + (unsigned long long)st->st_mtim.tv_nsec);
    f->meta_len = (uint16_t)snprintf(f->meta, sizeof f->meta,
                                     "Last-Modified: %s\r\nETag: %s\r\nAccept-Ranges: bytes\r\n", date, f->etag);
    if (f->data && size >= CL_HTTP_LEND_LEAST)
        (void)cl_region_new(f->data, (int64_t)size, &f->region); /* without memory for it: they copy */
    return f;
}

bool cl_http_file_is(const struct cl_http_file *f, const struct stat *st)
{
    return f->device == st->st_dev && f->inode == st->st_ino && f->size == (uint64_t)st->st_size &&
           f->modified.tv_sec == st->st_mtim.tv_sec && f->modified.tv_nsec == st->st_mtim.tv_nsec &&
           f->changed.tv_sec == st->st_ctim.tv_sec && f->changed.tv_nsec == st->st_ctim.tv_nsec;
}

void cl_http_file_put(struct cl_http_file *f)
{
    if (!f || __atomic_sub_fetch(&f->refs, 1, __ATOMIC_ACQ_REL))
        return;
    if (f->fd >= 0)
        close(f->fd);
    (void)cl_region_delete(f->region); /* who has lent of it has a reference */
    free(f);
}
