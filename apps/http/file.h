/* A file as it was at one time: what answers are made of. It never changes; whoever uses it has a reference. */
#ifndef CORELANE_APPS_HTTP_FILE_H
#define CORELANE_APPS_HTTP_FILE_H

#include "text.h"

#include <corelane/libos/lease.h>
#include <sys/stat.h>

#define CL_HTTP_META_MOST 320
#define CL_HTTP_LEND_LEAST 16384 /* bytes that are worth sending from where they lie */

struct cl_http_file {
    uint32_t refs; /* acquire and release: who lets go last frees it */
    uint16_t meta_len, etag_len;
    uint64_t size;
    int64_t modified_s; /* since 1970 */
    struct timespec modified, changed;
    uint64_t device, inode;
    int fd;                       /* open, if it is too large for the cache; else -1 */
    const uint8_t *data;          /* its bytes, or NULL: they are read piece by piece */
    const char *type;             /* constant */
    char etag[64];                /* with its quotes; strong */
    char meta[CL_HTTP_META_MOST]; /* header lines of each answer that has it, but for its length */
    struct cl_region *region;     /* of `data`, for connections to send from; NULL: they copy */
    uint8_t bytes[];
};

/* A new one for what stat says, with one reference; its bytes are the caller's to fill in. with_data: it has room for
 * them. NULL: no memory. */
struct cl_http_file *cl_http_file_new(const struct stat *st, const char *path, bool with_data);
/* Whether the file on disk is still the same one, as far as stat tells: size, times and inode. */
bool cl_http_file_is(const struct cl_http_file *f, const struct stat *st);
void cl_http_file_put(struct cl_http_file *f);

static inline struct cl_http_file *cl_http_file_get(struct cl_http_file *f)
{
    __atomic_fetch_add(&f->refs, 1, __ATOMIC_RELAXED); /* the caller has one already, or the cache's lock */
    return f;
}

/* Memory that it takes in the cache. */
static inline uint64_t cl_http_file_cost(const struct cl_http_file *f)
{
    return sizeof *f + (f->data ? f->size : 0);
}

#endif
