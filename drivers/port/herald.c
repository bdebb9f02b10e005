/* Wake-ups for kthreads that sleep in an epoll of their own (libos/sched/adopt.c).
 *
 * The iokernel, and a kthread of another process that cedes a core, wake by futex: the words are shared memory, a
 * descriptor of ours they do not have. A thread of the port, the herald, sleeps on those futexes for all such kthreads
 * of the port, and hands a wake on to the eventfd of the kthread's parker. It costs a wake-up of a thread more.
 *
 * No wake-up is lost between two sleeps of the herald:
 *
 *   kthread                                   herald
 *   word = PARKED; fence                      g = generation; v = word
 *   generation + 1                            g has changed since the last time, and v is not PARKED: hand a wake on
 *   look at all work again                    futex_waitv(generation == g, word == v)
 *
 * A wake before the kthread raises the generation is seen by the kthread, since the waker has published the work
 * before. A wake after it ends the herald's sleep, or comes before it; either way the herald then finds that the word
 * is not PARKED and has been, or that the generation has changed. A grant only rises: there the value alone tells. A
 * wake too many ends one sleep for nothing.
 *
 * tests/drivers/port/test_herald_model.py explores this. */
#include "internal.h"

#include <errno.h>
#include <linux/futex.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449 /* Linux 5.16, all architectures */
#endif

/* struct futex_waitv of Linux 5.16, for headers that are older. */
struct wait_for {
    uint64_t value, address;
    uint32_t flags, reserved;
};
#define WORD_32 2u

struct port_herald {
    uint32_t generation; /* futex, private. RMW: kthreads that park, and who wants the herald to look again */
    uint32_t stop;
    pthread_t thread;
    uint32_t seen; /* the herald's own from here on: the generation of the last sleep, and ... */
    struct {
        const uint32_t *word; /* ... what it slept on, and its value then */
        uint32_t value;
    } last[CL_SHM_MAX_KTHREADS];
};

static void hand_on(struct port *port, unsigned k)
{
    uint64_t one = 1;
    ssize_t ignored = write(port->parkers[k].event_fd, &one, sizeof one); /* EAGAIN: it is readable */
    (void)ignored;
}

/* The word by which kthread k is woken at this moment; *parked: the value that says that it has not been. */
static const uint32_t *word_of(struct port *port, unsigned k, bool *grants)
{
    struct port_arena *a = cl_load_acquire(&port->managed);
    *grants = a != NULL;
    return a ? &a->slots[a->slot + k].grant : cl_load_relaxed(&port->parkers[k].word);
}

/* Who wakes wakes one: us, perhaps, and not the kthread that waits in place on the same word, interrupted in foreign
 * code. So that one is woken, too; it has said that it waits before it reads the word. */
static void woken_on(struct port *port, unsigned k, const uint32_t *word)
{
    hand_on(port, k);
    cl_fence_seq_cst(); /* before `waiting` is read */
    if (cl_load_relaxed(&port->waiters[k].waiting))
        syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
}

/* What to sleep on for kthread k. If it was woken since the last sleep, hand that on. */
static struct wait_for prepare(struct port *port, unsigned k, bool parked_anew)
{
    struct port_herald *h = port->herald;
    bool grants;
    const uint32_t *word = word_of(port, k, &grants);
    uint32_t value = cl_load_acquire(word);
    bool same = h->last[k].word == word, changed = !same || h->last[k].value != value;
    if (grants ? changed : value != CL_PARK_PARKED && (changed || parked_anew))
        woken_on(port, k, word);
    h->last[k].word = word;
    h->last[k].value = value;
    return (struct wait_for){value, (uint64_t)(uintptr_t)word, WORD_32, 0};
}

static void *run(void *arg)
{
    struct port *port = arg;
    struct port_herald *h = port->herald;
    struct wait_for words[1 + CL_SHM_MAX_KTHREADS];
    for (;;) {
        uint32_t generation = cl_load_acquire(&h->generation); /* acquire: before the words, see above */
        unsigned n = 0;
        if (cl_load_acquire(&h->stop))
            return NULL;
        words[n++] =
            (struct wait_for){generation, (uint64_t)(uintptr_t)&h->generation, WORD_32 | FUTEX_PRIVATE_FLAG, 0};
        for (unsigned k = 0; k < port->nic.n_queues; k++)
            if (cl_load_acquire(&port->parkers[k].given))
                words[n++] = prepare(port, k, generation != h->seen);
        h->seen = generation;
        syscall(SYS_futex_waitv, words, n, 0, NULL, 0); /* woken or not, the words tell */
    }
}

static void raise_generation(struct port_herald *h)
{
    __atomic_fetch_add(&h->generation, 1, __ATOMIC_SEQ_CST);
}

void port_herald_look(struct port *port)
{
    struct port_herald *h = cl_load_acquire(&port->herald);
    if (!h)
        return;
    raise_generation(h);
    syscall(SYS_futex, &h->generation, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

void port_herald_wake(struct port *port, unsigned k)
{
    if (cl_load_acquire(&port->parkers[k].given))
        hand_on(port, k);
}

void cl_port_parked(struct cl_nic *nic, unsigned k)
{
    struct port_herald *h = cl_load_acquire(&port_of(nic)->herald);
    (void)k;
    if (h)
        raise_generation(h);
}

int cl_port_herald(struct cl_nic *nic)
{
    struct port *port = port_of(nic);
    if (port->herald)
        return 0;
    if (syscall(SYS_futex_waitv, NULL, 0, 0, NULL, 0) < 0 && errno == ENOSYS)
        return -ENOSYS;
    struct port_herald *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    cl_store_release(&port->herald, h);
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int rc = pthread_create(&h->thread, NULL, run, port);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (rc) {
        port->herald = NULL;
        free(h);
        return -rc;
    }
    pthread_setname_np(h->thread, "cl-herald");
    return 0;
}

void port_herald_delete(struct port *port)
{
    struct port_herald *h = port->herald;
    if (!h)
        return;
    cl_store_release(&h->stop, 1);
    port_herald_look(port);
    pthread_join(h->thread, NULL);
    port->herald = NULL;
    free(h);
}
