/* The engine of the file device (blk_file.h) for systems without io_uring: worker threads that make plain system calls.
 *
 * A queue has one list of requests to do, under its lock, and one of requests done, which workers push to without it. A
 * submit wakes as many workers as it has brought requests; poll takes the whole done list by one exchange.
 *
 * Through the page cache, what is to be durable takes turns, all queues together: the kernel tells that it could not
 * write a page to the first who asks, once an open file, and of two who ask side by side the other would take his own
 * lost write for durable.
 *
 * A worker that the kernel keeps in a call cannot be ended: closing then leaves all as it is, since the call may still
 * write. */
#include "engine.h"

#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#ifndef RWF_DSYNC
#define RWF_DSYNC 2
#endif

struct turns { /* of all queues; a turn is the kernel's answer to one request that is to be durable, or several */
    pthread_mutex_t lock;
    pthread_cond_t passed;
    uint64_t taken, now;
};

struct threads {
    struct turns turns;
    struct queue *queues;
};

struct queue {
    struct cl_blk_file *file;
    struct turns *turns;  /* NULL: direct I/O, each has its own error */
    pthread_mutex_t lock; /* of the list to do, `ending`, `working` and `served` */
    pthread_cond_t work, ended;
    struct cl_blk_req *first, *last;
    bool ending;
    uint32_t working; /* workers that have not left */
    uint64_t served;  /* requests, by all workers */
    pthread_t *threads;
    uint32_t n_threads;

    /* The user's. */
    uint32_t in_flight CL_ALIGNED(CL_CACHELINE);
    struct cl_blk_req *taken; /* from the done list, not given back yet */
    struct cl_blk_stats stats;

    /* Workers push (release: the results), the user takes all (acquire). */
    struct cl_blk_req *done CL_ALIGNED(CL_CACHELINE);
    uint32_t armed; /* writer: the user; readers: workers. Both sides fence between this word and `done`: one sees the
                * other */
    uint64_t continued; /* RMW, relaxed: a statistic */
    int event_fd;
};

static struct queue *queue_of(struct cl_blk *blk, unsigned queue)
{
    return &((struct threads *)((struct cl_blk_file *)blk)->engine)->queues[queue];
}

static void announce(struct queue *q)
{
    (void)eventfd_write(q->event_fd, 1); /* EAGAIN: it is readable */
}

static void push_done(struct queue *q, struct cl_blk_req *r)
{
    r->next = cl_load_relaxed(&q->done);
    while (!__atomic_compare_exchange_n(&q->done, &r->next, r, true, __ATOMIC_RELEASE, __ATOMIC_RELAXED))
        ;
    cl_fence_seq_cst(); /* after the push, before `armed` is read */
    if (cl_load_relaxed(&q->armed))
        announce(q);
}

/* The kernel was short of memory for the `refused`th time: rest, longer each time. False: it was often enough. */
static bool rest(unsigned refused)
{
    unsigned doublings = cl_min(refused - 1, 16u);
    if (refused > CL_BLK_REFUSED_MOST)
        return false;
    nanosleep(&(struct timespec){.tv_nsec = cl_min(1u << doublings, CL_BLK_PAUSE_MOST_MS) * 1000000l}, NULL);
    return true;
}

static int sync_data(struct queue *q)
{
    int rc;
    unsigned refused = 0;
    do
        rc = fdatasync(q->file->fd) < 0 ? -errno : 0;
    while (rc == -EINTR || (rc == -EAGAIN && rest(++refused)));
    if (cl_blk_file_failed(rc))
        cl_store_relaxed(&q->file->not_durable, rc);
    return rc ? rc : cl_load_relaxed(&q->file->not_durable); /* another one's failure may have been this one's */
}

/* One call; how much was done, or -errno. */
static ssize_t move(struct queue *q, const struct cl_blk_req *r, uint32_t done)
{
    struct iovec iov = {(uint8_t *)r->buf + done, r->bytes - done};
    off_t at = (off_t)(q->file->start + r->offset + done);
    bool dsync = r->flags & CL_BLK_DURABLE && !cl_load_relaxed(&q->file->no_dsync);
    ssize_t n = r->op == CL_BLK_READ ? preadv2(q->file->fd, &iov, 1, at, 0)
                                     : pwritev2(q->file->fd, &iov, 1, at, dsync ? RWF_DSYNC : 0);
    if (n < 0 && (errno == EOPNOTSUPP || errno == ENOSYS) && dsync) {
        cl_store_relaxed(&q->file->no_dsync, 1);
        return -EINTR;
    }
    return n < 0 ? -errno : n;
}

/* One call, and what follows from it: bytes by which the request has come further; 0: it goes once more; -errno.
 * `refused`: how often the kernel was short of memory since a byte was done. */
static ssize_t move_on(struct queue *q, const struct cl_blk_req *r, uint32_t done, unsigned *refused)
{
    ssize_t n = move(q, r, done);
    if (n == -EAGAIN && rest(++*refused))
        return 0;
    if (n < 0)
        return n == -EINTR ? 0 : n;
    *refused = 0;
    if (done + (uint32_t)n < r->bytes)
        n &= ~(ssize_t)(q->file->blk.block_bytes - 1); /* direct I/O goes on at a block */
    return n ? n : -EIO;                               /* the file has shrunk */
}

static int do_request(struct queue *q, const struct cl_blk_req *r)
{
    if (r->op == CL_BLK_FLUSH)
        return sync_data(q);
    unsigned refused = 0;
    for (uint32_t done = 0; done < r->bytes;) {
        ssize_t n = move_on(q, r, done, &refused);
        if (n < 0)
            return (int)n;
        done += (uint32_t)n;
        if (done < r->bytes)
            __atomic_fetch_add(&q->continued, 1, __ATOMIC_RELAXED);
    }
    return r->flags & CL_BLK_DURABLE && cl_load_relaxed(&q->file->no_dsync) ? sync_data(q) : 0;
}

static void take_turn(struct turns *t)
{
    pthread_mutex_lock(&t->lock);
    uint64_t mine = t->taken++;
    while (t->now != mine)
        pthread_cond_wait(&t->passed, &t->lock);
    pthread_mutex_unlock(&t->lock);
}

static void pass_turn(struct turns *t)
{
    pthread_mutex_lock(&t->lock);
    t->now++;
    pthread_cond_broadcast(&t->passed);
    pthread_mutex_unlock(&t->lock);
}

static int serve(struct queue *q, const struct cl_blk_req *r)
{
    bool durable = r->op == CL_BLK_FLUSH || r->flags & CL_BLK_DURABLE, turn = q->turns && durable;
    if (turn)
        take_turn(q->turns);
    int rc = cl_blk_file_refuses(q->file, r);
    if (!rc)
        rc = do_request(q, r);
    if (durable && cl_blk_file_failed(rc)) /* a write with RWF_DSYNC is a flush, too */
        cl_store_relaxed(&q->file->not_durable, rc);
    if (turn)
        pass_turn(q->turns);
    return rc;
}

static void *work(void *arg)
{
    struct queue *q = arg;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        struct cl_blk_req *r = q->first;
        if (!r) {
            if (q->ending)
                break;
            pthread_cond_wait(&q->work, &q->lock);
            continue;
        }
        if (!(q->first = r->next))
            q->last = NULL;
        pthread_mutex_unlock(&q->lock);
        r->result = serve(q, r);
        push_done(q, r);
        pthread_mutex_lock(&q->lock);
        q->served++;
        if (q->ending)
            pthread_cond_signal(&q->ended);
    }
    q->working--;
    pthread_cond_signal(&q->ended);
    pthread_mutex_unlock(&q->lock);
    return NULL;
}

static unsigned threads_submit(struct cl_blk *blk, unsigned queue, struct cl_blk_req **reqs, unsigned n)
{
    struct queue *q = queue_of(blk, queue);
    unsigned take = cl_min(n, blk->depth - q->in_flight), todo = 0;
    struct cl_blk_req *first = NULL, *last = NULL;
    for (unsigned i = 0; i < take; i++) {
        struct cl_blk_req *r = reqs[i];
        r->next = NULL;
        if ((r->result = cl_blk_check(blk, r))) {
            push_done(q, r);
            continue;
        }
        *(last ? &last->next : &first) = r;
        last = r;
        todo++;
    }
    q->in_flight += take;
    cl_count(&q->stats.submitted, take);
    if (take < n)
        cl_count(&q->stats.full, 1);
    if (!todo)
        return take;
    pthread_mutex_lock(&q->lock);
    *(q->last ? &q->last->next : &q->first) = first;
    q->last = last;
    pthread_mutex_unlock(&q->lock);
    cl_count(&q->stats.syscalls, 1);
    if (todo == 1)
        pthread_cond_signal(&q->work);
    else
        pthread_cond_broadcast(&q->work);
    return take;
}

static unsigned threads_poll(struct cl_blk *blk, unsigned queue, struct cl_blk_req **done, unsigned n)
{
    struct queue *q = queue_of(blk, queue);
    unsigned got = 0;
    while (got < n) {
        if (!q->taken &&
            (!cl_load_relaxed(&q->done) || !(q->taken = __atomic_exchange_n(&q->done, NULL, __ATOMIC_ACQUIRE))))
            break;
        struct cl_blk_req *r = done[got++] = q->taken;
        q->taken = r->next;
        cl_blk_count(&q->stats, r);
    }
    q->in_flight -= got;
    return got;
}

static int threads_fd(struct cl_blk *blk, unsigned queue)
{
    return queue_of(blk, queue)->event_fd;
}

static void set_armed(struct queue *q, bool on)
{
    cl_store_relaxed(&q->armed, on);
    cl_fence_seq_cst(); /* before `done` is read */
}

static void threads_arm(struct cl_blk *blk, unsigned queue, bool on)
{
    struct queue *q = queue_of(blk, queue);
    set_armed(q, on);
    if (on && (q->taken || cl_load_relaxed(&q->done)))
        announce(q);
}

static int threads_wait(struct cl_blk *blk, unsigned queue, int64_t timeout_ns)
{
    struct queue *q = queue_of(blk, queue);
    bool armed = q->armed;
    int rc = 0;
    set_armed(q, true);
    if (q->in_flight && !q->taken && !cl_load_relaxed(&q->done) && timeout_ns) {
        struct timespec t = {timeout_ns / 1000000000, timeout_ns % 1000000000};
        struct pollfd p = {.fd = q->event_fd, .events = POLLIN};
        cl_count(&q->stats.syscalls, 1);
        rc = ppoll(&p, 1, timeout_ns < 0 ? NULL : &t, NULL) < 0 ? -errno : 0;
    }
    if (!armed) {
        uint64_t count;
        set_armed(q, false);
        if (read(q->event_fd, &count, sizeof count) < 0 && errno != EAGAIN)
            rc = -errno;
        cl_count(&q->stats.syscalls, 1);
    }
    return rc;
}

static void threads_stats(struct cl_blk *blk, unsigned queue, struct cl_blk_stats *out)
{
    struct queue *q = queue_of(blk, queue);
    cl_blk_stats_read(&q->stats, out);
    out->continued += cl_load_relaxed(&q->continued);
}

static struct timespec close_deadline(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    t.tv_sec += CL_BLK_CLOSE_MS / 1000;
    t.tv_nsec += CL_BLK_CLOSE_MS % 1000 * 1000000l;
    return t.tv_nsec < 1000000000 ? t : (struct timespec){t.tv_sec + 1, t.tv_nsec - 1000000000};
}

/* Whether all workers have left. What is to do is done first. */
static bool workers_end(struct queue *q)
{
    pthread_mutex_lock(&q->lock);
    q->ending = true;
    pthread_cond_broadcast(&q->work);
    struct timespec deadline = close_deadline();
    uint64_t served = q->served;
    while (q->working) {
        int rc = pthread_cond_timedwait(&q->ended, &q->lock, &deadline);
        if (q->served != served)
            deadline = close_deadline();
        else if (rc == ETIMEDOUT)
            break;
        served = q->served;
    }
    bool ended = !q->working;
    pthread_mutex_unlock(&q->lock);
    return ended;
}

/* Their workers have left. */
static void threads_delete(struct threads *e, unsigned n)
{
    for (unsigned i = 0; i < n; i++) {
        struct queue *q = &e->queues[i];
        for (unsigned t = 0; t < q->n_threads; t++)
            pthread_join(q->threads[t], NULL);
        free(q->threads);
        if (q->event_fd >= 0)
            close(q->event_fd);
        pthread_cond_destroy(&q->work);
        pthread_cond_destroy(&q->ended);
        pthread_mutex_destroy(&q->lock);
    }
    pthread_cond_destroy(&e->turns.passed);
    pthread_mutex_destroy(&e->turns.lock);
    free(e->queues);
    free(e);
}

static int threads_close(struct cl_blk *blk)
{
    struct cl_blk_file *f = (struct cl_blk_file *)blk;
    for (unsigned i = 0; i < blk->n_queues; i++)
        if (!workers_end(queue_of(blk, i)))
            return -EBUSY;
    threads_delete(f->engine, blk->n_queues);
    cl_blk_file_delete(f);
    return 0;
}

static const struct cl_blk_ops threads_ops = {
    .name = "file",
    .submit = threads_submit,
    .poll = threads_poll,
    .wait = threads_wait,
    .fd = threads_fd,
    .arm = threads_arm,
    .stats = threads_stats,
    .close = threads_close,
};

/* Workers take no signals: those are the application's. */
static int start_workers(struct queue *q, uint32_t n)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = 0;
    q->threads = calloc(n, sizeof(*q->threads));
    if (!q->threads)
        rc = -ENOMEM;
    pthread_mutex_lock(&q->lock); /* of `working`: a worker may be there before it is counted */
    for (; !rc && q->n_threads < n; q->n_threads += !rc)
        rc = -pthread_create(&q->threads[q->n_threads], NULL, work, q);
    q->working = q->n_threads;
    pthread_mutex_unlock(&q->lock);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}

/* With nothing started. NULL: out of memory. */
static struct threads *threads_new(struct cl_blk_file *f)
{
    unsigned n = f->blk.n_queues;
    struct threads *e = calloc(1, sizeof(*e));
    if (!e || !(e->queues = aligned_alloc(CL_CACHELINE, n * sizeof(*e->queues)))) {
        free(e);
        return NULL;
    }
    memset(e->queues, 0, n * sizeof(*e->queues));
    pthread_mutex_init(&e->turns.lock, NULL);
    pthread_cond_init(&e->turns.passed, NULL);
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    for (unsigned i = 0; i < n; i++) {
        struct queue *q = &e->queues[i];
        q->file = f;
        q->turns = f->info.direct ? NULL : &e->turns;
        q->event_fd = -1;
        pthread_mutex_init(&q->lock, NULL);
        pthread_cond_init(&q->work, NULL);
        pthread_cond_init(&q->ended, &monotonic);
    }
    pthread_condattr_destroy(&monotonic);
    return e;
}

int cl_blk_threads_start(struct cl_blk_file *f, const struct cl_blk_file_config *config, char *err)
{
    unsigned n = f->blk.n_queues;
    struct threads *e = threads_new(f);
    if (!e)
        return cl_blk_file_refuse(err, -ENOMEM, "out of memory");
    for (unsigned i = 0; i < n; i++) {
        struct queue *queue = &e->queues[i];
        queue->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        int rc = queue->event_fd < 0 ? -errno : start_workers(queue, config->threads ? config->threads : 4);
        if (rc) {
            for (unsigned q = 0; q < n; q++)
                workers_end(&e->queues[q]); /* they have nothing to do, so they leave */
            threads_delete(e, n);
            return cl_blk_file_refuse(err, rc, "cannot start worker threads: %s", strerror(-rc));
        }
    }
    f->engine = e;
    f->blk.ops = &threads_ops;
    f->info.engine = CL_BLK_ENGINE_THREADS;
    return 0;
}
