/* Threads ask a cache for files while others are written, removed and evicted: each file that is found is whole, is
 * what its tag says, and its memory comes back. Without uthreads each thread does its loads itself, at the same time as
 * others.
 *
 * cache_stress FOLDER THREADS ROUNDS SEED */
#include "apps/http/cache.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FILES 40
#define BYTES_OF(byte) (100u + 7u * (byte))
#define BYTES_MOST BYTES_OF(255)
#define SHARD_BYTES 3000 /* of the cache: more than one file, and fewer than there are */

static struct cl_http_cache *cache;
static const char *folder;
static unsigned rounds, seed;
static uint64_t found_files, found_nothing, now_ms; /* relaxed: numbers */

static void die(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

/* Written beside and moved into place: a reader never sees half of one. Its bytes are all alike. */
static void write_file(unsigned i, uint8_t byte, size_t len)
{
    static uint8_t data[BYTES_MOST];
    char path[512], part[512];
    snprintf(path, sizeof path, "%s/%u", folder, i);
    snprintf(part, sizeof part, "%s/.part", folder);
    memset(data, byte, len);
    int fd = open(part, O_CREAT | O_TRUNC | O_WRONLY, 0600);
    if (fd < 0 || write(fd, data, len) != (ssize_t)len || close(fd) || rename(part, path))
        die("cannot write a file");
}

static void remove_file(unsigned i)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%u", folder, i);
    if (unlink(path) && errno != ENOENT)
        die("cannot remove a file");
}

static void check(const struct cl_http_file *f)
{
    if (!f->data)
        die("a small file is not in memory");
    for (uint64_t i = 1; i < f->size; i++)
        if (f->data[i] != f->data[0])
            die("a file is of two times");
    if (f->size != BYTES_OF(f->data[0]))
        die("a file has another length than its byte says");
}

static void *ask(void *arg)
{
    unsigned state = seed + (unsigned)(uintptr_t)arg;
    for (unsigned i = 0; i < rounds; i++) {
        char path[16];
        struct cl_http_file *file;
        int error;
        snprintf(path, sizeof path, "%u", (unsigned)rand_r(&state) % (FILES + 5));
        enum cl_http_found found = cl_http_cache_find(cache, path, cl_load_relaxed(&now_ms), &file, &error);
        if (found == CL_HTTP_FILE) {
            check(file);
            cl_http_file_put(file);
            __atomic_fetch_add(&found_files, 1, __ATOMIC_RELAXED);
        } else if (found == CL_HTTP_NOTHING && (error == ENOENT || error == EAGAIN)) {
            __atomic_fetch_add(&found_nothing, 1, __ATOMIC_RELAXED);
        } else {
            die("neither a file nor none");
        }
    }
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[16];
    struct cl_http_loader *loader;
    struct cl_http_cache_counts counts;
    char err[256];
    if (argc < 5)
        return 2;
    folder = argv[1];
    unsigned n = cl_min((unsigned)atoi(argv[2]), 16u);
    rounds = (unsigned)atoi(argv[3]);
    seed = (unsigned)atoi(argv[4]);
    if (cl_http_loader_new(folder, false, BYTES_MOST, &loader, err) ||
        cl_http_cache_new(loader, 16 * SHARD_BYTES, 5, &cache))
        die("cannot make a cache");
    for (unsigned i = 0; i < FILES; i++)
        write_file(i, (uint8_t)i, BYTES_OF(i));
    for (unsigned i = 0; i < n; i++)
        if (pthread_create(&threads[i], NULL, ask, (void *)(uintptr_t)i))
            die("cannot start a thread");
    for (unsigned i = 0; i < rounds; i++) {
        uint8_t byte = (uint8_t)(rand_r(&seed) % 250);
        unsigned which = (unsigned)rand_r(&seed) % FILES;
        if (byte < 30)
            remove_file(which);
        else
            write_file(which, byte, BYTES_OF(byte));
        __atomic_fetch_add(&now_ms, 1, __ATOMIC_RELAXED);
    }
    for (unsigned i = 0; i < n; i++)
        pthread_join(threads[i], NULL);
    cl_http_cache_counts(cache, &counts);
    if (counts.bytes > 16 * SHARD_BYTES || !counts.evicted || !found_files || !found_nothing)
        die("nothing was evicted, found, or missing: this tests nothing");
    cl_http_cache_delete(cache);
    printf("%llu files, %llu times none\n", (unsigned long long)found_files, (unsigned long long)found_nothing);
    return 0;
}
