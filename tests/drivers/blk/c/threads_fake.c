/* The engine of worker threads (drivers/blk/threads.c) on a kernel that is not one: its calls answer what a case says,
 * in order, and pauses take no time. */
#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

ssize_t fake_move(int fd, const struct iovec *iov, int n, off_t at, int flags);
int fake_fdatasync(int fd);
int fake_nanosleep(const struct timespec *t, struct timespec *left);
#define preadv2 fake_move
#define pwritev2 fake_move
#define fdatasync fake_fdatasync
#define nanosleep fake_nanosleep
#define CL_BLK_CLOSE_MS close_ms
static unsigned close_ms = 60000;
#include "drivers/blk/threads.c"

#include "tests/drivers/blk/c/file_fake.h"
#include "tests/support/c/check.h"

/* The kernel's side. Of the lock: all of it. */
static pthread_mutex_t kernel = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
#define WHOLE 0 /* as an answer to a read or write: all that was asked for */
#define NOTHING (1 << 30)
static int answers[8];     /* to reads and writes: bytes, or -errno. The last one stands for all that come later */
static unsigned n_answers; /* 0: each is whole */
static int sync_answer;    /* to each fdatasync */
static int sync_refusal;   /* to so many before: */
static unsigned refusals;
static char calls[1024]; /* 'd' a write with RWF_DSYNC, 'm' another one or a read, 's' fdatasync, 'p' a pause */
static unsigned n_calls, longest_ms, paused_ms;
static off_t last_at;
static size_t last_bytes;
static bool held;      /* a call does not return while this is so */
static unsigned stuck; /* calls that do not */
static bool forgetful; /* no page can be written, which is told once: to the first sync behind it */
static unsigned lost;  /* writes, since somebody was told */

static void called(char what)
{
    CHECK(n_calls < sizeof calls - 1, "no end of calls: %.40s...", calls);
    calls[n_calls++] = what;
}

/* What a sync is told by the forgetful kernel. It is slow, so that of writes that go side by side all are there. */
static int told_once(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 20000000;
    until = (struct timespec){until.tv_sec + until.tv_nsec / 1000000000, until.tv_nsec % 1000000000};
    while (lost < 2 && pthread_cond_timedwait(&changed, &kernel, &until) == 0)
        ;
    bool any = lost;
    lost = 0;
    return any ? -EIO : 0;
}

ssize_t fake_move(int fd, const struct iovec *iov, int n, off_t at, int flags)
{
    (void)fd;
    pthread_mutex_lock(&kernel);
    CHECK(n == 1, "one buffer");
    unsigned i = 0;
    for (unsigned k = 0; k < n_calls; k++)
        i += calls[k] == 'm' || calls[k] == 'd';
    called(flags & RWF_DSYNC ? 'd' : 'm');
    last_at = at;
    last_bytes = iov->iov_len;
    int answer = n_answers ? answers[cl_min(i, n_answers - 1)] : WHOLE;
    stuck++;
    pthread_cond_broadcast(&changed);
    while (held)
        pthread_cond_wait(&changed, &kernel);
    stuck--;
    lost += forgetful;
    if (forgetful && flags & RWF_DSYNC)
        answer = told_once();
    pthread_mutex_unlock(&kernel);
    errno = answer < 0 ? -answer : 0;
    return answer < 0 ? -1 : answer == WHOLE ? (ssize_t)iov->iov_len : answer == NOTHING ? 0 : answer;
}

int fake_fdatasync(int fd)
{
    (void)fd;
    pthread_mutex_lock(&kernel);
    called('s');
    int answer = refusals ? sync_refusal : forgetful ? told_once() : sync_answer;
    refusals -= refusals > 0;
    pthread_mutex_unlock(&kernel);
    errno = -answer;
    return answer ? -1 : 0;
}

int fake_nanosleep(const struct timespec *t, struct timespec *left)
{
    (void)left;
    pthread_mutex_lock(&kernel);
    called('p');
    unsigned ms = (unsigned)(t->tv_nsec / 1000000);
    CHECK(t->tv_sec == 0 && ms * 1000000l == t->tv_nsec, "whole milliseconds");
    CHECK(ms == cl_min(2 * longest_ms, CL_BLK_PAUSE_MOST_MS) || ms == 1, "%u ms behind %u", ms, longest_ms);
    longest_ms = ms;
    paused_ms += ms;
    pthread_mutex_unlock(&kernel);
    return 0;
}

static uint8_t *buf;

static struct cl_blk *device_of(unsigned queues, unsigned workers, bool direct)
{
    struct cl_blk_file *f = file_new();
    f->blk.n_queues = queues;
    f->info.direct = direct;
    struct cl_blk_file_config config = {.threads = workers};
    memset(calls, 0, sizeof calls);
    n_answers = n_calls = longest_ms = paused_ms = 0;
    sync_answer = 0;
    CHECK(cl_blk_threads_start(f, &config, NULL) == 0, "started");
    return &f->blk;
}

static struct cl_blk *device(unsigned workers)
{
    return device_of(1, workers, false);
}

/* How a durable write of two blocks ends whose calls are answered so, and which calls it took. */
static void write_ends(bool no_dsync, unsigned n, const int *with, int sync, int result, const char *expected)
{
    struct cl_blk *blk = device(1);
    ((struct cl_blk_file *)blk)->no_dsync = no_dsync;
    memcpy(answers, with, n * sizeof *with);
    n_answers = n;
    sync_answer = sync;
    int rc = cl_blk_write(blk, 0, 2 * BLOCK, buf, 2 * BLOCK, CL_BLK_DURABLE);
    CHECK(rc == result, "the answer is %d, not %d (%s)", rc, result, expected);
    CHECK(!strcmp(calls, expected), "calls %s, not %s", calls, expected);
    CHECK(cl_blk_close(blk) == 0 && files_deleted == 1, "closed");
}

#define ANSWERS(...)                                                                                                   \
    sizeof((int[]){__VA_ARGS__}) / sizeof(int), (const int[])                                                          \
    {                                                                                                                  \
        __VA_ARGS__                                                                                                    \
    }

static void durable_writes(void)
{
    write_ends(false, ANSWERS(WHOLE), -EIO, 0, "d"); /* no fdatasync, whatever it would answer */
    for (unsigned i = 0; i < 2; i++) {
        int error = i ? -ENOSPC : -EIO;
        write_ends(false, ANSWERS(error, WHOLE), 0, error, "d"); /* not tried again */
        write_ends(true, ANSWERS(error, WHOLE), 0, error, "m");  /* nor synced */
        write_ends(true, ANSWERS(WHOLE), error, error, "ms");
        write_ends(false, ANSWERS(-EOPNOTSUPP, WHOLE), error, error, "dms");
    }
    write_ends(true, ANSWERS(WHOLE), 0, 0, "ms");
    write_ends(false, ANSWERS(-EOPNOTSUPP, WHOLE), 0, 0, "dms");
    write_ends(false, ANSWERS(-EOPNOTSUPP, -EOPNOTSUPP), 0, -EOPNOTSUPP, "dm");
    write_ends(false, ANSWERS(-EINTR, WHOLE), 0, 0, "dd");
}

static void short_writes(void)
{
    write_ends(false, ANSWERS(BLOCK, WHOLE), 0, 0, "dd");
    CHECK(last_at == 3 * BLOCK && last_bytes == BLOCK, "the second block");
    write_ends(false, ANSWERS(BLOCK + 512, WHOLE), 0, 0, "dd");
    CHECK(last_at == 3 * BLOCK && last_bytes == BLOCK, "it goes on at a block");
    write_ends(true, ANSWERS(BLOCK, WHOLE), -EIO, -EIO, "mms");
    write_ends(false, ANSWERS(BLOCK, -ENOSPC), 0, -ENOSPC, "dd");
    write_ends(false, ANSWERS(2 * BLOCK - 512, BLOCK - 512), 0, -EIO, "dd"); /* less than a block is no progress */
    write_ends(false, ANSWERS(BLOCK - 512), 0, -EIO, "d");
    write_ends(false, ANSWERS(NOTHING), 0, -EIO, "d");
}

/* A flush that failed has failed, and is not tried again. A plain write has none. */
static void flushes(void)
{
    struct cl_blk *blk = device(1);
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, 0) == 0 && !strcmp(calls, "m"), "calls %s", calls);
    CHECK(cl_blk_flush(blk, 0) == 0 && !strcmp(calls, "ms"), "calls %s", calls);
    sync_answer = -EIO;
    CHECK(cl_blk_flush(blk, 0) == -EIO && !strcmp(calls, "mss"), "calls %s", calls);
    struct cl_blk_stats stats;
    cl_blk_stats(blk, 0, &stats);
    CHECK(stats.failed == 1 && stats.flushes == 1 && stats.writes == 1 && stats.completed == 3, "counted");
    CHECK(cl_blk_close(blk) == 0, "closed");
}

/* One that the kernel did not begin goes once more, and if it never does, the next one may. */
static void refused_flushes(void)
{
    struct cl_blk *blk = device(1);
    sync_refusal = -EINTR;
    refusals = 3;
    CHECK(cl_blk_flush(blk, 0) == 0 && !strcmp(calls, "ssss"), "calls %s", calls);
    sync_refusal = -EAGAIN;
    refusals = 2;
    CHECK(cl_blk_flush(blk, 0) == 0 && !strcmp(calls, "ssssspsps"), "calls %s", calls);
    refusals = CL_BLK_REFUSED_MOST + 1;
    longest_ms = 0;
    CHECK(cl_blk_flush(blk, 0) == -EAGAIN && !refusals, "refused for good");
    CHECK(cl_blk_flush(blk, 0) == 0, "and done");
    CHECK(cl_blk_close(blk) == 0, "closed");
}

/* Behind a flush that failed nothing is durable any more, though the kernel says so. Reads and other writes go on. */
static void a_failed_flush_is_final(bool direct)
{
    struct cl_blk *blk = device_of(1, 1, direct);
    sync_answer = -ENOSPC;
    CHECK(cl_blk_flush(blk, 0) == -ENOSPC, "failed");
    sync_answer = 0;
    CHECK(cl_blk_flush(blk, 0) == -ENOSPC, "once and for all");
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, CL_BLK_DURABLE) == -ENOSPC && !strcmp(calls, "s"), "calls %s", calls);
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, 0) == 0 && cl_blk_read(blk, 0, 0, buf, BLOCK) == 0, "the rest goes on");
    CHECK(cl_blk_close(blk) == 0, "closed");
    blk = device_of(1, 1, direct);
    CHECK(cl_blk_flush(blk, 0) == 0 && cl_blk_close(blk) == 0, "as good as new when it is opened anew");
}

/* So is a durable write: it is a flush of what others wrote, too, of another queue's plain write for one. */
static void a_failed_durable_write(bool direct)
{
    struct cl_blk *blk = device_of(2, 1, direct);
    answers[0] = WHOLE;
    answers[1] = -EIO;
    answers[2] = WHOLE;
    n_answers = 3;
    CHECK(cl_blk_write(blk, 1, BLOCK, buf, BLOCK, 0) == 0, "in the disk's cache");
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, CL_BLK_DURABLE) == -EIO, "failed");
    CHECK(cl_blk_flush(blk, 1) == -EIO, "what was in the cache may be lost");
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, CL_BLK_DURABLE) == -EIO && !strcmp(calls, "md"), "calls %s", calls);
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, 0) == 0 && cl_blk_read(blk, 0, 0, buf, BLOCK) == 0, "the rest goes on");
    CHECK(cl_blk_close(blk) == 0, "closed");
}

/* One that never began is no failure. */
static void a_refused_durable_write_is_not(bool direct)
{
    struct cl_blk *blk = device_of(1, 1, direct);
    answers[0] = -EAGAIN;
    n_answers = 1;
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, CL_BLK_DURABLE) == -EAGAIN, "refused for good");
    n_answers = 0;
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, CL_BLK_DURABLE) == 0 && cl_blk_flush(blk, 0) == 0, "it goes on");
    CHECK(cl_blk_close(blk) == 0, "closed");
}

/* What is refused a few times is done, behind pauses that grow; what has come further has as many tries as before. */
static void refused_for_a_while(void)
{
    write_ends(false, ANSWERS(-EAGAIN, -EAGAIN, -EAGAIN, BLOCK, -EAGAIN, -EAGAIN, WHOLE), 0, 0, "dpdpdpddpdpd");
    CHECK(paused_ms == 1 + 2 + 4 + 1 + 2, "%u ms", paused_ms);
}

static void refused_for_good(void)
{
    struct cl_blk *blk = device(1);
    answers[0] = -EAGAIN;
    n_answers = 1;
    CHECK(cl_blk_read(blk, 0, 0, buf, BLOCK) == -EAGAIN, "an error at last");
    CHECK(n_calls == 2 * CL_BLK_REFUSED_MOST + 1, "%u calls and pauses", n_calls);
    CHECK(longest_ms == CL_BLK_PAUSE_MOST_MS && paused_ms / 1000 == 12, "%u ms", paused_ms);
    n_answers = 0;
    CHECK(cl_blk_read(blk, 0, 0, buf, BLOCK) == 0, "it goes on");
    CHECK(cl_blk_close(blk) == 0, "closed");
}

static struct cl_blk_req reqs[DEPTH];

/* A write to each block, the first half by the first queue, if there are two. */
static void submit(struct cl_blk *blk, uint8_t flags)
{
    struct cl_blk_req *p[DEPTH];
    for (unsigned i = 0; i < DEPTH; i++) {
        p[i] = &reqs[i];
        reqs[i] =
            (struct cl_blk_req){.op = CL_BLK_WRITE, .flags = flags, .offset = i * BLOCK, .bytes = BLOCK, .buf = buf};
    }
    unsigned each = DEPTH / blk->n_queues;
    for (unsigned q = 0; q < blk->n_queues; q++)
        CHECK(cl_blk_submit(blk, q, p + q * each, each) == each, "taken");
}

static void hold(bool on)
{
    pthread_mutex_lock(&kernel);
    held = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&kernel);
}

static void wait_for_stuck(unsigned calls_held)
{
    pthread_mutex_lock(&kernel);
    while (stuck < calls_held)
        pthread_cond_wait(&changed, &kernel);
    pthread_mutex_unlock(&kernel);
}

/* Through the page cache no durable write has another's answer, be it of another queue. */
static void each_durable_write_fails(unsigned queues, bool no_dsync)
{
    struct cl_blk *blk = device_of(queues, 4, false);
    ((struct cl_blk_file *)blk)->no_dsync = no_dsync;
    forgetful = true;
    submit(blk, CL_BLK_DURABLE);
    CHECK(cl_blk_close(blk) == 0, "closed");
    forgetful = false;
    for (unsigned i = 0; i < DEPTH; i++)
        CHECK(reqs[i].result == -EIO, "request %u, which is lost, has the answer %d", i, reqs[i].result);
}

/* Nor does one of two flushes say that all is well while the other is told that it is not. */
static void each_flush_fails(void)
{
    struct cl_blk *blk = device_of(2, 1, false);
    forgetful = true;
    CHECK(cl_blk_write(blk, 0, 0, buf, BLOCK, 0) == 0 && cl_blk_write(blk, 1, BLOCK, buf, BLOCK, 0) == 0, "written");
    for (unsigned i = 0; i < 2; i++) {
        struct cl_blk_req *p = &reqs[i];
        reqs[i] = (struct cl_blk_req){.op = CL_BLK_FLUSH};
        CHECK(cl_blk_submit(blk, i, &p, 1) == 1, "taken");
    }
    CHECK(cl_blk_close(blk) == 0, "closed");
    forgetful = false;
    CHECK(reqs[0].result == -EIO && reqs[1].result == -EIO, "%d, %d", reqs[0].result, reqs[1].result);
}

/* Turns are for what is to be durable through the page cache alone. */
static void side_by_side(bool direct, uint8_t flags)
{
    struct cl_blk *blk = device_of(1, 2, direct);
    hold(true);
    submit(blk, flags);
    wait_for_stuck(2);
    hold(false);
    CHECK(cl_blk_close(blk) == 0 && n_calls == DEPTH, "closed after %u calls", n_calls);
}

/* Closing does what there is to do first. */
static void closed_with_work_to_do(void)
{
    struct cl_blk *blk = device(2);
    submit(blk, 0);
    CHECK(cl_blk_close(blk) == 0 && files_deleted == 1, "closed");
    CHECK(n_calls == DEPTH, "%u calls", n_calls);
}

/* Nothing comes back: all is left where it is, so that what comes later does no harm. */
static void closed_while_calls_do_not_return(uint8_t flags)
{
    struct cl_blk *blk = device(2);
    hold(true);
    submit(blk, flags);
    wait_for_stuck(flags ? 1 : 2); /* the other one waits for its turn */
    close_ms = 100;
    CHECK(cl_blk_close(blk) == -EBUSY && files_deleted == 0, "given up");
    CHECK(cl_blk_close(blk) == -EBUSY && files_deleted == 0, "and once more");
    close_ms = 60000;
    hold(false); /* the disk wakes up */
    CHECK(cl_blk_close(blk) == 0 && files_deleted == 1, "so this time it is closed");
    CHECK(n_calls == DEPTH, "%u calls", n_calls);
}

int main(void)
{
    buf = aligned_alloc(BLOCK, 2 * BLOCK);
    memset(buf, 7, 2 * BLOCK);
    durable_writes();
    short_writes();
    flushes();
    refused_flushes();
    for (unsigned direct = 0; direct < 2; direct++) {
        a_failed_flush_is_final(direct);
        a_failed_durable_write(direct);
        a_refused_durable_write_is_not(direct);
    }
    for (unsigned i = 0; i < 4; i++)
        each_durable_write_fails(1 + i / 2, i % 2);
    each_flush_fails();
    side_by_side(true, CL_BLK_DURABLE);
    side_by_side(false, 0);
    refused_for_a_while();
    refused_for_good();
    closed_with_work_to_do();
    closed_while_calls_do_not_return(0);
    closed_while_calls_do_not_return(CL_BLK_DURABLE);
    free(buf);
    printf("ok\n");
    return 0;
}
