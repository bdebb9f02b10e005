/* Threads that read files, so that no kthread waits for a disk.
 *
 * Whoever has a job gives it to cl_http_load and sleeps until it is done: a uthread blocks, its kthread goes on with
 * others. Elsewhere (a test's thread) the job is done at once, by the caller. */
#ifndef CORELANE_APPS_HTTP_LOADER_H
#define CORELANE_APPS_HTTP_LOADER_H

#include "file.h"

#include <corelane/libos/sync.h>

#define CL_HTTP_LOADERS 2 /* threads: a large file does not hold up the small ones */

enum cl_http_found {
    CL_HTTP_FILE = 0,
    CL_HTTP_DIRECTORY,
    CL_HTTP_SAME,   /* as it was known */
    CL_HTTP_NOTHING /* there is no such file, or it may not be served: error says why */
};

/* One job. The caller's memory until cl_http_load returns. */
struct cl_http_job {
    /* In: look a path up ... */
    const char *path;
    const struct cl_http_file *known; /* what is known of it, or NULL */
    /* ... or read a piece of an open file, if `file` is not NULL. */
    const struct cl_http_file *file;
    uint8_t *to;
    uint64_t from, len;
    /* Out. */
    enum cl_http_found found;
    struct cl_http_file *made; /* CL_HTTP_FILE: the caller's reference */
    int error;                 /* errno; 0 */
    struct cl_http_job *next;
    struct cl_sem done;
};

struct cl_http_loader;

/* root: the folder whose files are served. symlinks: links that stay inside of it are followed, else none is. Files up
 * to whole_most bytes are read at once, larger ones piece by piece. -errno, with a sentence. */
int cl_http_loader_new(const char *root, bool symlinks, uint64_t whole_most, struct cl_http_loader **out,
                       char err[256]);
void cl_http_load(struct cl_http_loader *l, struct cl_http_job *job);
/* Ends the threads. Nobody may wait for a job. */
void cl_http_loader_delete(struct cl_http_loader *l);

#endif
