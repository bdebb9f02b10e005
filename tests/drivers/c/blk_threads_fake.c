/* The engine of worker threads (drivers/blk_threads.c) on a kernel that is not one: its calls answer what a case says, in order, and
 * pauses take no time. */
#include <errno.h>
#include <pthread.h>
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
#include "drivers/blk_threads.c"

#include "tests/drivers/c/blk_file_fake.h"
#include "tests/support/c/check.h"

/* The kernel's side. Of the lock: all of it. */
static pthread_mutex_t kernel = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
#define WHOLE 0 /* as an answer to a read or write: all that was asked for */
#define NOTHING (1 << 30)
static int answers[8];     /* to reads and writes: bytes, or -errno. The last one stands for all that come later */
static unsigned n_answers; /* 0: each is whole */
static int sync_answer;    /* to each fdatasync */
static char calls[1024];   /* 'd' a write with RWF_DSYNC, 'm' another one or a read, 's' fdatasync, 'p' a pause */
static unsigned n_calls, longest_ms, paused_ms;
static off_t last_at;
static size_t last_bytes;
static bool held;      /* a call does not return while this is so */
static unsigned stuck; /* calls that do not */

static void called(char what)
{
    CHECK(n_calls < sizeof calls - 1, "no end of calls: %.40s...", calls);
    calls[n_calls++] = what;
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
    pthread_mutex_unlock(&kernel);
    errno = answer < 0 ? -answer : 0;
    return answer < 0 ? -1 : answer == WHOLE ? (ssize_t)iov->iov_len : answer == NOTHING ? 0 : answer;
}

int fake_fdatasync(int fd)
{
    (void)fd;
    pthread_mutex_lock(&kernel);
    called('s');
    int answer = sync_answer;
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

static struct cl_blk *device(unsigned workers)
{
    struct cl_blk_file *f = file_new();
    struct cl_blk_file_config config = {.threads = workers};
    memset(calls, 0, sizeof calls);
    n_answers = n_calls = longest_ms = paused_ms = 0;
    sync_answer = 0;
    CHECK(cl_blk_threads_start(f, &config, NULL) == 0, "started");
    return &f->blk;
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

static void submit(struct cl_blk *blk)
{
    struct cl_blk_req *p[DEPTH];
    for (unsigned i = 0; i < DEPTH; i++) {
        p[i] = &reqs[i];
        reqs[i] = (struct cl_blk_req){.op = CL_BLK_WRITE, .offset = i * BLOCK, .bytes = BLOCK, .buf = buf};
    }
    CHECK(cl_blk_submit(blk, 0, p, DEPTH) == DEPTH, "taken");
}

static void hold(bool on)
{
    pthread_mutex_lock(&kernel);
    held = on;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&kernel);
}

/* Closing does what there is to do first. */
static void closed_with_work_to_do(void)
{
    struct cl_blk *blk = device(2);
    submit(blk);
    CHECK(cl_blk_close(blk) == 0 && files_deleted == 1, "closed");
    CHECK(n_calls == DEPTH, "%u calls", n_calls);
}

/* Nothing comes back: all is left where it is, so that what comes later does no harm. */
static void closed_while_calls_do_not_return(void)
{
    struct cl_blk *blk = device(2);
    hold(true);
    submit(blk);
    pthread_mutex_lock(&kernel);
    while (stuck < 2)
        pthread_cond_wait(&changed, &kernel);
    pthread_mutex_unlock(&kernel);
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
    refused_for_a_while();
    refused_for_good();
    closed_with_work_to_do();
    closed_while_calls_do_not_return();
    free(buf);
    printf("ok\n");
    return 0;
}
