/* Waiting for a word and for requests at once (wait_word of corelane/drivers/blk.h): each ends the wait, whichever
 * comes first and wherever the other is at that moment. Prints what passed, or why there is nothing to test.
 * Usage: blk_word ROUNDS SEED FILE */
#include <corelane/drivers/blk_file.h>
#include "drivers/random.h"

#include "tests/support/c/check.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct cl_blk *blk;
static uint8_t *buf;
static uint32_t word; /* writer: the waker; reader: main */
static uint32_t seen; /* the other way round */
static uint64_t rounds;
static struct cl_random waker_random;

static void pause_some(struct cl_random *random)
{
    for (uint64_t i = cl_random_next(random) % 3000; i; i--)
        cl_relax();
}

/* Bump the word, as soon as the last value was seen. */
static void *waker(void *arg)
{
    (void)arg;
    for (uint64_t i = 0; i < rounds; i++) {
        pause_some(&waker_random);
        cl_store_release(&word, word + 1);
        syscall(SYS_futex, &word, FUTEX_WAKE, 1, NULL, NULL, 0);
        while (cl_load_acquire(&seen) != word)
            sched_yield();
    }
    return NULL;
}

static void submit(struct cl_blk_req *req)
{
    *req = (struct cl_blk_req){.op = CL_BLK_WRITE, .flags = CL_BLK_DURABLE, .bytes = blk->block_bytes, .buf = buf};
    struct cl_blk_req *one = req;
    CHECK(blk->ops->submit(blk, 0, &one, 1) == 1);
}

static unsigned collect(void)
{
    struct cl_blk_req *done[2];
    unsigned n = blk->ops->poll(blk, 0, done, 2);
    for (unsigned i = 0; i < n; i++)
        CHECK(done[i]->result == 0);
    return n;
}

/* A word that differs and a time that is over end the wait at once, or soon; what is done does, too. */
static void each_alone(void)
{
    struct cl_blk_req req;
    CHECK(blk->ops->wait_word(blk, 0, &word, 1, -1) == 0);
    CHECK(!blk->ops->ready(blk, 0));
    CHECK(blk->ops->wait_word(blk, 0, &word, 0, 1000000) == 0); /* its entry stays in the ring */
    submit(&req);
    while (!collect())
        CHECK(blk->ops->wait_word(blk, 0, &word, 0, -1) == 0);
    CHECK(!blk->ops->ready(blk, 0));
    CHECK(blk->ops->wait_word(blk, 0, &word, 1, -1) ==
          0); /* the entry is still there, the word is compared all the same */
    uint32_t other = 0;
    CHECK(blk->ops->wait_word(blk, 0, &other, 0, -1) == -ENOTSUP);
}

/* Every change of the word is seen, and every request collected, without a time limit: a lost wake-up ends in the
 * alarm. */
static void both(struct cl_random *random)
{
    pthread_t t;
    struct cl_blk_req req;
    bool flies = false;
    uint64_t changes = 0, collected = 0;
    CHECK(pthread_create(&t, NULL, waker, NULL) == 0);
    while (changes < rounds) {
        if (!flies && cl_random_next(random) % 2) {
            submit(&req);
            flies = true;
        }
        uint32_t value = cl_load_relaxed(&seen);
        pause_some(random);
        CHECK(blk->ops->wait_word(blk, 0, &word, value, -1) == 0);
        if (flies && collect()) {
            flies = false;
            collected++;
        }
        if (cl_load_acquire(&word) != value) {
            changes++;
            cl_store_release(&seen, value + 1);
        }
    }
    CHECK(pthread_join(t, NULL) == 0);
    for (; flies; collected += !flies) { /* a slow device may not have done the first one yet */
        CHECK(blk->ops->wait(blk, 0, -1) == 0);
        flies = !collect();
    }
    CHECK(collected > 0);
}

int main(int argc, char **argv)
{
    char err[256];
    struct cl_random random;
    CHECK(argc == 4);
    alarm(100);
    rounds = strtoull(argv[1], NULL, 10);
    random = (struct cl_random){strtoull(argv[2], NULL, 10)};
    waker_random = (struct cl_random){cl_random_next(&random)};
    struct cl_blk_file_config config = {.path = argv[3], .fd = -1};
    CHECK(cl_blk_file_open(&config, &blk, err) == 0);
    CHECK(posix_memalign((void **)&buf, blk->block_bytes, blk->block_bytes) == 0);
    memset(buf, 1, blk->block_bytes);
    if (cl_blk_wait_word(blk, 0, &word, 1, 0) == -ENOTSUP) {
        CHECK(cl_blk_wait_word(blk, 0, &word, 1, 0) == -ENOTSUP); /* and stays so */
        printf("skip: it needs io_uring and Linux 6.7\n");
    } else {
        each_alone();
        both(&random);
        printf("ok\n");
    }
    cl_blk_close(blk); /* with the entry of the word in the ring */
    free(buf);
    return 0;
}
