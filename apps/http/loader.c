/* See loader.h.
 *
 * A path is opened below the root by openat2(2): RESOLVE_BENEATH lets nothing lead out of it, not even while somebody
 * moves folders about, and RESOLVE_NO_SYMLINKS follows no link. */
#include "loader.h"

#include <corelane/libos/scope.h>
#include <corelane/libos/uthread.h>

#include <errno.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#define TRIES 3 /* to read a file that changes meanwhile */

struct cl_http_loader {
    struct cl_http_job *jobs; /* a stack: pushed by anybody (release), taken whole (acquire) under `taking` */
    pthread_mutex_t taking;
    struct cl_http_job *taken; /* in order of arrival */
    sem_t waiting;             /* one for each job, and for each thread at the end */
    bool ends;
    int root;
    uint64_t resolve;
    uint64_t whole_most;
    unsigned n;
    pthread_t threads[CL_HTTP_LOADERS];
};

/* Looking up. */

static int open_below(const struct cl_http_loader *l, const char *path)
{
    struct open_how how = {.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, .resolve = l->resolve};
    return (int)syscall(SYS_openat2, l->root, *path ? path : ".", &how, sizeof how);
}

static int read_all(int fd, uint8_t *to, uint64_t len, uint64_t from)
{
    while (len) {
        ssize_t n = pread(fd, to, len, (off_t)from);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return n < 0 ? errno : ESTALE; /* it has become shorter */
        to += n;
        from += (uint64_t)n;
        len -= (uint64_t)n;
    }
    return 0;
}

/* Read it whole. It must be the same before and after. EAGAIN: it was not. */
static int read_whole(struct cl_http_job *job, int fd, const struct stat *st)
{
    struct stat after;
    struct cl_http_file *f = cl_http_file_new(st, job->path, true);
    if (!f)
        return ENOMEM;
    int error = read_all(fd, f->bytes, f->size, 0);
    if (!error && fstat(fd, &after) < 0)
        error = errno;
    if (!error && !cl_http_file_is(f, &after))
        error = EAGAIN;
    if (error)
        cl_http_file_put(f);
    else
        job->made = f;
    return error == ESTALE ? EAGAIN : error;
}

static int keep_open(struct cl_http_job *job, int fd, const struct stat *st)
{
    struct cl_http_file *f = cl_http_file_new(st, job->path, false);
    if (!f)
        return ENOMEM;
    f->fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (f->fd < 0) {
        cl_http_file_put(f);
        return errno;
    }
    job->made = f;
    return 0;
}

static int look_at(const struct cl_http_loader *l, struct cl_http_job *job, int fd)
{
    struct stat st;
    if (fstat(fd, &st) < 0)
        return errno;
    if (S_ISDIR(st.st_mode)) {
        job->found = CL_HTTP_DIRECTORY;
        return 0;
    }
    if (!S_ISREG(st.st_mode))
        return EACCES;
    if (job->known && cl_http_file_is(job->known, &st)) {
        job->found = CL_HTTP_SAME;
        return 0;
    }
    job->found = CL_HTTP_FILE;
    return (uint64_t)st.st_size <= l->whole_most ? read_whole(job, fd, &st) : keep_open(job, fd, &st);
}

static void look_up(const struct cl_http_loader *l, struct cl_http_job *job)
{
    job->error = EAGAIN;
    for (unsigned i = 0; i < TRIES && job->error == EAGAIN; i++) {
        int fd = open_below(l, job->path);
        job->error = fd < 0 ? errno : look_at(l, job, fd);
        if (fd >= 0)
            close(fd);
    }
    if (job->error)
        job->found = CL_HTTP_NOTHING;
}

static void work(const struct cl_http_loader *l, struct cl_http_job *job)
{
    if (job->file)
        job->error = read_all(job->file->fd, job->to, job->len, job->from);
    else
        look_up(l, job);
}

/* Threads. */

static struct cl_http_job *take(struct cl_http_loader *l)
{
    pthread_mutex_lock(&l->taking);
    if (!l->taken)
        for (struct cl_http_job *job = cl_exchange(&l->jobs, (struct cl_http_job *)NULL), *next; job; job = next) {
            next = job->next;
            job->next = l->taken;
            l->taken = job;
        }
    struct cl_http_job *job = l->taken;
    if (job)
        l->taken = job->next;
    pthread_mutex_unlock(&l->taking);
    return job;
}

static void *load(void *arg)
{
    struct cl_http_loader *l = arg;
    while (!cl_load_acquire(&l->ends)) {
        if (sem_wait(&l->waiting) < 0)
            continue;
        struct cl_http_job *job = take(l);
        if (!job)
            continue;
        work(l, job);
        cl_sem_post(&job->done);
    }
    return NULL;
}

void cl_http_load(struct cl_http_loader *l, struct cl_http_job *job)
{
    job->found = CL_HTTP_NOTHING;
    job->made = NULL;
    job->error = 0;
    if (!cl_uthread_self()) {
        work(l, job);
        return;
    }
    cl_sem_init(&job->done, 0);
    job->next = cl_load_relaxed(&l->jobs);
    /* Release: the loader reads the job. */
    while (!__atomic_compare_exchange_n(&l->jobs, &job->next, job, false, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    sem_post(&l->waiting);
    cl_shield_enter();             /* the job is the caller's memory */
    (void)cl_sem_wait(&job->done); /* on a uthread, in a callback that may block */
    cl_shield_leave();
}

/* From the beginning to the end. */

static int start(struct cl_http_loader *l)
{
    sigset_t all, before;
    int rc = 0;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before); /* signals are for the process's own threads */
    while (l->n < CL_HTTP_LOADERS && (rc = -pthread_create(&l->threads[l->n], NULL, load, l)) == 0)
        l->n++;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

int cl_http_loader_new(const char *root, bool symlinks, uint64_t whole_most, struct cl_http_loader **out, char err[256])
{
    struct cl_http_loader *l = calloc(1, sizeof *l);
    if (!l) {
        snprintf(err, 256, "out of memory");
        return -ENOMEM;
    }
    l->root = open(root, O_PATH | O_DIRECTORY | O_CLOEXEC);
    l->resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | (symlinks ? 0 : RESOLVE_NO_SYMLINKS);
    l->whole_most = whole_most;
    pthread_mutex_init(&l->taking, NULL);
    sem_init(&l->waiting, 0, 0);
    int rc = l->root < 0 ? -errno : start(l);
    if (rc == 0) {
        *out = l;
        return 0;
    }
    snprintf(err, 256, l->root < 0 ? "cannot open the folder %s: %s" : "cannot start a thread for %s: %s", root,
             strerror(-rc));
    cl_http_loader_delete(l);
    return rc;
}

void cl_http_loader_delete(struct cl_http_loader *l)
{
    if (!l)
        return;
    cl_store_release(&l->ends, true);
    for (unsigned i = 0; i < l->n; i++)
        sem_post(&l->waiting);
    for (unsigned i = 0; i < l->n; i++)
        pthread_join(l->threads[i], NULL);
    if (l->root >= 0)
        close(l->root);
    sem_destroy(&l->waiting);
    pthread_mutex_destroy(&l->taking);
    free(l);
}
