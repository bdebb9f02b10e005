/* A work source: frames from a foreign thread go through queues and inboxes to runners, whose handlers block, yield,
 * compute for long or do nothing. Every frame is handled once; frames behind a long handler are taken over by a
 * sibling; doorbells ring after work; the kthread sleeps in the source's wait. Usage: source KTHREADS MODE FRAMES
 * SEED */
#include "check.h"

#include <pthread.h>
#include <sched.h>

#define QUEUE 256
#define INBOX 64

struct queue {
    struct cl_spin lock; /* guards all of it */
    uint32_t frames[QUEUE], n_frames, inbox[INBOX], n_inbox;
    uint32_t n_frames_seen, n_inbox_seen; /* copies for `ready` and `pending`, atomic */
    uint32_t word;
    struct cl_parker parker;
    uint64_t waits, flushes, unflushed;
} CL_ALIGNED(128);

static struct queue *queues;
static unsigned n_queues, n_frames;
static uint8_t *handled;
static uint64_t done, held_back;
static struct cl_sem gate;

static void publish(struct queue *q)
{
    cl_store_relaxed(&q->n_frames_seen, q->n_frames);
    cl_store_relaxed(&q->n_inbox_seen, q->n_inbox);
}

static unsigned move(uint32_t *to, uint32_t *n_to, uint32_t *from, uint32_t *n_from, unsigned most)
{
    unsigned n = cl_min(cl_min(*n_from, most), INBOX - *n_to);
    memcpy(to + *n_to, from, n * sizeof *to);
    memmove(from, from + n, (*n_from - n) * sizeof *from);
    *n_to += n;
    *n_from -= n;
    return n;
}

static unsigned poll_queue(void *arg, unsigned self, unsigned which)
{
    struct queue *q = &queues[which], *mine = &queues[self];
    unsigned n = 0;
    (void)arg;
    CHECK_EQ(cl_kthread_index(), self);
    CHECK(cl_uthread_self() == NULL);
    if (!cl_spin_try(&q->lock))
        return 0;
    if (q == mine) {
        n = move(q->inbox, &q->n_inbox, q->frames, &q->n_frames, 16);
    } else if (cl_spin_try(&mine->lock)) {
        n = move(mine->inbox, &mine->n_inbox, q->inbox, &q->n_inbox, (q->n_inbox + 1) / 2);
        if (!n)
            n = move(mine->inbox, &mine->n_inbox, q->frames, &q->n_frames, 16);
        publish(mine);
        cl_spin_unlock(&mine->lock);
    }
    publish(q);
    cl_spin_unlock(&q->lock);
    return n;
}

static unsigned pending(void *arg, unsigned which)
{
    (void)arg;
    return cl_load_relaxed(&queues[which].n_inbox_seen);
}

static bool ready(void *arg, unsigned which)
{
    (void)arg;
    return cl_load_relaxed(&queues[which].n_frames_seen) || cl_load_relaxed(&queues[which].n_inbox_seen);
}

static void handle(uint32_t frame)
{
    CHECK_EQ(__atomic_fetch_add(&handled[frame], 1, __ATOMIC_RELAXED), 0);
    struct cl_sched *s = cl_sched_self();
    switch (frame % 16) {
    case 3:
        cl_uthread_yield();
        break;
    case 5:
        cl_uthread_sleep_ns(frame % 50 * 1000);
        break;
    case 7: /* one waits until the next such frame comes: runners pile up */
        if (frame / 16 % 2) {
            cl_sem_post(&gate);
        } else {
            CHECK_EQ(cl_sem_wait(&gate), 0);
        }
        break;
    case 11:
        for (uint64_t end = cl_sched_now_ns(s) + 50000; frame % 8 == 3 && cl_sched_now_ns(s) < end;)
            ;
        break;
    }
    __atomic_fetch_add(&done, 1, __ATOMIC_RELEASE);
}

static void run(void *arg, unsigned self)
{
    (void)arg;
    CHECK(cl_uthread_self() != NULL);
    CHECK_EQ(cl_kthread_index(), self);
    for (;;) {
        struct queue *q = &queues[cl_kthread_index()];
        cl_spin_lock(&q->lock);
        bool some = q->n_inbox != 0;
        uint32_t frame = q->inbox[0];
        if (some)
            memmove(q->inbox, q->inbox + 1, --q->n_inbox * sizeof frame);
        publish(q);
        cl_spin_unlock(&q->lock);
        if (!some)
            return;
        handle(frame);
        /* Written by code on that kthread alone. */
        cl_count(&queues[cl_kthread_index()].unflushed, 1);
    }
}

static bool flush(void *arg, unsigned self)
{
    (void)arg;
    struct queue *q = &queues[self];
    /* Now and then the NIC is full for three calls: what stays must be tried again, though nothing runs any more. */
    if (q->flushes++ % 8 >= 5 && q->unflushed)
        return true;
    cl_store_release(&q->unflushed, 0);
    return false;
}

static struct cl_parker *parker(void *arg, unsigned k)
{
    (void)arg;
    return &queues[k].parker;
}

static int wait_frames(void *arg, unsigned k, int64_t timeout_ns)
{
    (void)arg;
    CHECK(queues[k].unflushed == 0 || (timeout_ns > 0 && timeout_ns <= 1000000)); /* nobody sleeps long on a reply */
    queues[k].waits++;
    cl_park_wait(&queues[k].parker, timeout_ns);
    return 0;
}

static void send(uint32_t frame, unsigned which)
{
    struct queue *q = &queues[which];
    for (;;) {
        cl_spin_lock(&q->lock);
        bool room = q->n_frames < QUEUE;
        if (room)
            q->frames[q->n_frames++] = frame;
        publish(q);
        cl_spin_unlock(&q->lock);
        cl_park_wake(&q->parker);
        if (room)
            return;
        __atomic_fetch_add(&held_back, 1, __ATOMIC_RELAXED);
        sched_yield();
    }
}

int main(int argc, char **argv)
{
    struct cl_sched_config c = config_from(argc, argv);
    n_frames = (argc > 3 ? (unsigned)atoi(argv[3]) : 20000) / 32 * 32;
    uint64_t state = argc > 4 ? strtoull(argv[4], NULL, 0) : 1;
    struct cl_work_source source = {.poll = poll_queue,
                                    .ready = ready,
                                    .pending = pending,
                                    .run = run,
                                    .flush = flush,
                                    .parker = parker,
                                    .wait = wait_frames};
    n_queues = c.n_kthreads;
    queues = aligned_alloc(128, n_queues * sizeof *queues);
    memset(queues, 0, n_queues * sizeof *queues);
    for (unsigned k = 0; k < n_queues; k++)
        queues[k].parker = (struct cl_parker){.word = &queues[k].word, .event_fd = -1};
    handled = calloc(n_frames, 1);
    c.source = &source;
    struct cl_sched *s = sched_started(&c);
    for (uint32_t i = 0; i < n_frames; i++) {
        /* Most frames go to queue 0, so that there is something to steal. */
        send(i, next_random(&state) % 4 ? 0 : next_random(&state) % n_queues);
        if (next_random(&state) % 512 == 0)
            usleep(200); /* let all of them sleep now and then */
    }
    while (__atomic_load_n(&done, __ATOMIC_ACQUIRE) < n_frames)
        usleep(100);
    for (unsigned k = 0; k < n_queues; k++)
        while (cl_load_acquire(&queues[k].unflushed))
            usleep(100);
    uint64_t frames = 0, waits = 0, flushes = 0;
    CHECK_EQ(cl_sched_stop(s, 10000000000), 0);
    for (unsigned k = 0; k < n_queues; k++) {
        struct cl_sched_stats st;
        cl_sched_stats(s, k, &st);
        frames += st.frames + st.stolen_frames;
        waits += queues[k].waits;
        CHECK_EQ(queues[k].unflushed, 0);
        flushes += queues[k].flushes;
        CHECK_EQ(st.parks, queues[k].waits);
        CHECK_EQ(st.runners_refused, 0);
        CHECK_EQ(st.spawned >= st.runners, 1);
        printf("kthread %u: frames %llu stolen %llu runners %llu parks %llu\n", k, (unsigned long long)st.frames,
               (unsigned long long)st.stolen_frames, (unsigned long long)st.runners, (unsigned long long)st.parks);
    }
    CHECK(frames >= n_frames); /* a frame stolen from an inbox had been polled before */
    CHECK(flushes > 0 && (c.poll == CL_SCHED_SPIN || waits > 0));
    for (unsigned i = 0; i < n_frames; i++)
        CHECK_EQ(handled[i], 1);
    cl_sched_delete(s);
    free(queues);
    free(handled);
    return 0;
}
