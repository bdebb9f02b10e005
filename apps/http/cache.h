/* Files in memory, by path, up to a bound, and never older than they may be.
 *
 * What was looked at no longer than `fresh_ms` ago is answered from memory. The first who asks later has a loader look
 * at the file again; whoever asks for it meanwhile waits for the same look. Unless the file has changed that is an open
 * and a stat. That a path names nothing is kept in the same way.
 * When the bound is reached entries go that were not asked for lately (the clock algorithm: each gets a second chance).
 * Threads: uthreads of any kthread. The lock of a shard is held for a few instructions, that of an entry while a loader
 * works. */
#ifndef CORELANE_APPS_HTTP_CACHE_H
#define CORELANE_APPS_HTTP_CACHE_H

#include "loader.h"

struct cl_http_cache;

/* Counts; written by anybody, atomically. */
struct cl_http_cache_counts {
    uint64_t hits, looks; /* answered from memory; a loader had to look */
    uint64_t loads;       /* looks that found another file than before */
    uint64_t evicted;
    uint64_t entries, bytes; /* now */
};

/* The loader becomes the cache's. -ENOMEM. */
int cl_http_cache_new(struct cl_http_loader *loader, uint64_t bytes_most, uint32_t fresh_ms,
                      struct cl_http_cache **out);
/* What a path names at now_ms, on a clock that only goes forward. CL_HTTP_FILE: *file is the caller's reference.
 * CL_HTTP_DIRECTORY; CL_HTTP_NOTHING: *error says why (ENOENT, EACCES, ELOOP, EXDEV, ENOMEM, ...). May block. */
enum cl_http_found cl_http_cache_find(struct cl_http_cache *c, const char *path, uint64_t now_ms,
                                      struct cl_http_file **file, int *error);
/* Read a piece of a file that is not in memory. errno. May block. */
int cl_http_cache_read(struct cl_http_cache *c, const struct cl_http_file *f, uint8_t *to, uint64_t from, uint64_t len);
void cl_http_cache_counts(struct cl_http_cache *c, struct cl_http_cache_counts *out);
/* Nobody may use it. */
void cl_http_cache_delete(struct cl_http_cache *c);

#endif
