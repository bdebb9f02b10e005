/* A kthread that waits for its core, against an iokernel whose words this test writes one by one: grants that come
 * late, at the wrong moment, or while it gets up by itself are acted on all the same (docs/cores.md). Prints what
 * passed.
 *
 *   port_cores */
#define CHECK_CONTEXT "(%s)", scenario
#include "tests/support/c/check.h"

#include "../../../../drivers/port/internal.h"

#include <linux/futex.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define ME 1u    /* the kthread's slot plus 1 */
#define OTHER 2u /* of another application */
#define SHORT_NS 1000000
#define UNSAID 99u

static const char *scenario = "";

/* What is shared, as the iokernel lays it out. */
static struct {
    struct cl_arena_kthread line;
    struct cl_state_core core;
    struct cl_state_kthread slots[2];
    struct cl_state_loop loop;
} shared;
static struct port_arena arena;
static struct port port;
static struct cl_cores *cores;

static void world_new(bool yield_wait)
{
    static struct port_waiter waiter;
    static struct cl_parker parker;
    static struct port_tx tx;
    static struct cl_desc descs[2];
    static uint32_t tx_head;
    memset(&shared, 0, sizeof shared);
    memset(&waiter, 0, sizeof waiter);
    CHECK(cl_ring_tx_init(&tx.ring, descs, &tx_head, 2) == 0);
    tx.arena = &arena;
    arena = (struct port_arena){.base = (uint8_t *)&shared.line,
                                .never_sleeps = true,
                                .managed = true,
                                .n_cores = 1,
                                .cores = &shared.core,
                                .slots = shared.slots,
                                .loop = &shared.loop};
    memset(&port, 0, sizeof port);
    port.nic.n_queues = 1;
    port.current = &arena;
    port.tx = &tx;
    arena.layout.n_kthreads = 1;
    arena.layout.rx_offset = 2 * CL_SHM_PAGE;
    char err[256];
    CHECK(port_cores_new(&port, err) == 0);
    free(port.waiters);
    port.waiters = &waiter;
    port.parkers = &parker;
    port.managed = &arena;
    cores = &port.cores;
    shared.slots[0].yield_wait = shared.slots[1].yield_wait = yield_wait;
    shared.slots[0].grant = shared.line.signals.acted = 1; /* it has the core, and runs */
    shared.core.owner = ME;
}

static void world_delete(void)
{
    port.waiters = NULL;
    port_cores_delete(&port);
}

/* The iokernel's side. */

static void give(uint32_t to)
{
    cl_store_release(&shared.core.owner, to);
    cl_store_release(&shared.slots[to - 1].grant, shared.slots[to - 1].grant + 1);
}

static void wake(uint32_t slot)
{
    syscall(SYS_futex, &shared.slots[slot - 1].grant, FUTEX_WAKE, 1, NULL, NULL, 0);
}

static void nap(void)
{
    nanosleep(&(struct timespec){0, 20000}, NULL);
}

static void await(uint32_t *word, uint32_t value)
{
    for (unsigned i = 0; cl_load_acquire(word) != value; i++) {
        CHECK(i < 500000);
        nap();
    }
}

static uint32_t acted(void)
{
    return cl_load_relaxed(&shared.line.signals.acted);
}

static bool waits(void)
{
    return cl_load_acquire(&port.waiters->waiting);
}

/* The kthread: one call in a thread of its own. */

enum call { CEDED, PARK, PARK_SHORTLY, PARK_AND_LOOK, CANCEL };

/* What it looks for while it is parked. Writers and readers: both threads, atomic. */
static struct {
    uint32_t there, sleeps, refuses;
    int64_t yield_ns;
} seen;

static bool look_done(void *arg)
{
    (void)arg;
    return cl_load_acquire(&seen.there);
}

static bool look_sleep(void *arg, const uint32_t *word, uint32_t value, int64_t timeout_ns)
{
    (void)arg;
    CHECK(word == &shared.slots[0].grant && timeout_ns == -1);
    CHECK(value <= cl_load_relaxed(word));
    __atomic_fetch_add(&seen.sleeps, 1, __ATOMIC_RELEASE);
    if (cl_load_relaxed(&seen.refuses))
        return false;
    nap();
    return true;
}

static void *run_call(void *arg)
{
    switch ((enum call)(uintptr_t)arg) {
    case CEDED:
        cores->ops->cede(cores, 0);
        break;
    case PARK:
        cores->ops->park_wait(cores, 0, -1, NULL);
        break;
    case PARK_SHORTLY:
        cores->ops->park_wait(cores, 0, SHORT_NS, NULL);
        break;
    case PARK_AND_LOOK: {
        struct cl_park_poll polled = {.yield_ns = seen.yield_ns, .done = look_done, .sleep = look_sleep};
        cores->ops->park_wait(cores, 0, -1, &polled);
        break;
    }
    case CANCEL:
        cores->ops->park_cancel(cores, 0);
        break;
    }
    return NULL;
}

static pthread_t start(enum call call)
{
    pthread_t t;
    CHECK(pthread_create(&t, NULL, run_call, (void *)(uintptr_t)call) == 0);
    return t;
}

/* It has returned: it runs, and has acted on the last grant. */
static void runs(pthread_t t)
{
    CHECK(pthread_join(t, NULL) == 0);
    CHECK(shared.line.park == CL_KTHREAD_RUNNING && !waits());
    CHECK(shared.line.signals.acted == shared.slots[0].grant);
    CHECK(!cores->ops->lost(cores, 0));
}

static void begin_to_park(void)
{
    CHECK(cores->ops->park_begin(cores, 0));
}

static void steps_aside_and_comes_back(void)
{
    cl_store_release(&shared.core.owner, OTHER);
    CHECK(cores->ops->lost(cores, 0));
    pthread_t t = start(CEDED);
    while (cl_load_acquire(&shared.line.park) == CL_KTHREAD_RUNNING)
        nap();
    CHECK(waits() && acted() == 1);
    give(ME);
    wake(ME);
    runs(t);
}

/* Who is woken by the one that cedes finds that it has said so: else the iokernel would have to interrupt it. */
static void *heir(void *said)
{
    long rc = syscall(SYS_futex, &shared.slots[1].grant, FUTEX_WAIT, 1, NULL, NULL, 0);
    cl_store_release((uint32_t *)said, rc == 0 ? cl_load_acquire(&shared.line.park) : CL_KTHREAD_RUNNING);
    return NULL;
}

static void says_so_before_it_wakes_its_heir(void)
{
    uint32_t said = UNSAID;
    pthread_t h;
    cl_store_relaxed(&shared.core.wake, 1);
    give(OTHER);
    CHECK(pthread_create(&h, NULL, heir, &said) == 0);
    pthread_t t;
    /* A wake before the heir sleeps is lost, as the heir is told of nothing but the futex here: cede again. */
    do {
        t = start(CEDED);
        await(&port.waiters->waiting, 1);
        for (unsigned i = 0; i < 500 && cl_load_acquire(&said) == UNSAID; i++)
            nap();
        if (cl_load_acquire(&said) != UNSAID)
            break;
        give(ME);
        wake(ME);
        runs(t);
        cl_store_release(&shared.core.owner, OTHER);
    } while (true);
    CHECK(pthread_join(h, NULL) == 0);
    CHECK(said == CL_KTHREAD_CEDED || said == CL_KTHREAD_CEDED_YIELDING);
    give(ME);
    wake(ME);
    runs(t);
}

/* It waited for a time, had its core all the while, and gave up waiting; the wake comes then. */
static void grant_after_it_gave_up_waiting(void)
{
    begin_to_park();
    pthread_t t = start(PARK_SHORTLY);
    runs(t);
    give(ME);
    wake(ME); /* nobody */
    CHECK(shared.line.signals.acted == 1);
    CHECK(!cores->ops->lost(cores, 0)); /* it is told to look, and does */
    CHECK(shared.line.signals.acted == 2);
    give(ME);
    cores->ops->wanted(cores, 0); /* and so it does when it has no work again */
    CHECK(shared.line.signals.acted == 3);
}

/* The grant comes between its last look and its sleep: no wake is needed, nor made. */
static void grant_between_look_and_sleep(void)
{
    begin_to_park();
    give(ME);
    runs(start(PARK));
    begin_to_park();
    give(ME);
    runs(start(CANCEL));
}

/* It loses its core and gets it back while it is about to sleep. */
static void lost_and_won_while_it_parked(void)
{
    begin_to_park();
    give(OTHER);
    give(ME);
    runs(start(PARK));
}

/* Its time is over, but the core went meanwhile: it waits for a grant, however long. */
static void a_timeout_brings_no_core(void)
{
    begin_to_park();
    give(OTHER);
    pthread_t t = start(PARK_SHORTLY);
    nanosleep(&(struct timespec){0, 3 * SHORT_NS}, NULL); /* it may be over or not: the rest holds in both cases */
    await(&port.waiters->waiting, 1);
    CHECK(acted() == 1 && cl_load_relaxed(&shared.line.park) != CL_KTHREAD_RUNNING);
    give(ME);
    wake(ME);
    runs(t);
}

/* There is work after all, and no core to do it on. */
static void cancelled_without_a_core(void)
{
    begin_to_park();
    give(OTHER);
    pthread_t t = start(CANCEL);
    await(&port.waiters->waiting, 1);
    give(ME);
    wake(ME);
    runs(t);
}

/* A core without a grant is nobody's: the iokernel stores the owner first, and may be interrupted in between. */
static void owner_before_grant(void)
{
    cl_store_release(&shared.core.owner, OTHER);
    pthread_t t = start(CEDED);
    await(&port.waiters->waiting, 1);
    cl_store_release(&shared.core.owner, ME);
    wake(ME);
    for (unsigned i = 0; i < 50; i++) {
        CHECK(waits() && acted() == 1);
        nap();
    }
    give(ME);
    wake(ME);
    runs(t);
}

static pthread_t start_to_look(bool refuses)
{
    memset(&seen, 0, sizeof seen);
    seen.refuses = refuses;
    seen.yield_ns = 100000;
    return start(PARK_AND_LOOK);
}

/* It has kept its core: nobody need tell it. */
static void what_it_looks_for_gets_it_up(void)
{
    begin_to_park();
    pthread_t t = start_to_look(false);
    while (!cl_load_acquire(&seen.sleeps) && !shared.slots[0].yield_wait)
        nap();
    cl_store_release(&seen.there, 1);
    runs(t);
    CHECK(acted() == 1);
}

static void what_it_looks_for_brings_no_core(void)
{
    begin_to_park();
    give(OTHER);
    pthread_t t = start_to_look(false);
    await(&port.waiters->waiting, 1);
    cl_store_release(&seen.there, 1);
    nanosleep(&(struct timespec){0, SHORT_NS}, NULL); /* it may have looked or not: the rest holds in both cases */
    CHECK(waits() && acted() == 1);
    give(ME);
    wake(ME);
    runs(t);
}

/* It would take half of the core from the one that has it. */
static void it_does_not_look_hot_on_the_core_of_another(void)
{
    begin_to_park();
    give(OTHER);
    memset(&seen, 0, sizeof seen);
    seen.yield_ns = 3600 * 1000000000ll;
    pthread_t t = start(PARK_AND_LOOK);
    for (unsigned i = 0; !cl_load_acquire(&seen.sleeps); i++) {
        CHECK(i < 500000);
        nap();
    }
    CHECK(shared.line.park == CL_KTHREAD_PARKED);
    give(ME);
    wake(ME);
    runs(t);
}

/* Then it sleeps on the grant alone. */
static void it_may_not_be_able_to_look(void)
{
    begin_to_park();
    give(OTHER);
    pthread_t t = start_to_look(true);
    await(&port.waiters->waiting, 1);
    give(ME);
    wake(ME);
    runs(t);
}

static void nobody_waits_when_the_kthreads_end(void)
{
    pthread_mutex_init(&port.lock, NULL);
    begin_to_park();
    give(OTHER);
    pthread_t t = start(PARK);
    await(&port.waiters->waiting, 1);
    cores->ops->release(cores);
    CHECK(pthread_join(t, NULL) == 0 && !waits());
    pthread_mutex_destroy(&port.lock);
}

static int32_t told;

static void *tell(void *err)
{
    const int32_t tid = 1;
    told = cores->ops->threads(cores, &tid, 1, 10, err);
    return NULL;
}

/* The iokernel takes its time to answer who asks to be managed: meanwhile others use the port, and may close it. */
static void telling_keeps_nobody_waiting(void)
{
    for (unsigned cut = 0; cut < 2; cut++) {
        char err[256] = "", refusal[256];
        int fds[2];
        pthread_t t;
        struct cl_control_kthreads k;
        struct cl_control_header ok = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_KTHREADS_OK, sizeof ok, 0};
        struct cl_port_info info;
        port.managed = NULL;
        port.timeout_ms = 30000;
        pthread_mutex_init(&port.lock, NULL);
        CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, fds) == 0);
        arena.memory.fd = memfd_create("arena", 0);
        CHECK(ftruncate(arena.memory.fd, 2 * CL_SHM_PAGE) == 0);
        port.control_fd = fds[0];
        port.joining_fd = -1;
        CHECK(pthread_create(&t, NULL, tell, err) == 0);
        CHECK(recv(fds[1], &k, sizeof k, MSG_WAITALL) == sizeof k && k.n == 1 && k.tids[0] == 1 && k.signal == 10);
        cl_port_info(&port.nic, &info); /* would wait for the answer, which comes only later */
        CHECK(cores->ops->threads(cores, k.tids, 1, 10, refusal) == -EBUSY && !cores->ops->managed(cores));
        if (cut) {
            pthread_mutex_lock(&port.lock);
            CHECK(port.joining_fd == fds[0] && shutdown(port.joining_fd, SHUT_RDWR) == 0); /* as port_close does */
            pthread_mutex_unlock(&port.lock);
        } else {
            CHECK(send(fds[1], &ok, sizeof ok, 0) == sizeof ok);
        }
        CHECK(pthread_join(t, NULL) == 0);
        CHECK(cut ? told < 0 && !port.managed : told == 0 && port.managed == &arena);
        CHECK(port.joining_fd == -1 && !port.telling);
        close(fds[0]);
        close(fds[1]);
        close(arena.memory.fd);
        pthread_mutex_destroy(&port.lock);
    }
}

static const struct {
    const char *name;
    void (*fn)(void);
} scenarios[] = {
    {"steps_aside_and_comes_back", steps_aside_and_comes_back},
    {"says_so_before_it_wakes_its_heir", says_so_before_it_wakes_its_heir},
    {"grant_after_it_gave_up_waiting", grant_after_it_gave_up_waiting},
    {"grant_between_look_and_sleep", grant_between_look_and_sleep},
    {"lost_and_won_while_it_parked", lost_and_won_while_it_parked},
    {"a_timeout_brings_no_core", a_timeout_brings_no_core},
    {"cancelled_without_a_core", cancelled_without_a_core},
    {"owner_before_grant", owner_before_grant},
    {"telling_keeps_nobody_waiting", telling_keeps_nobody_waiting},
    {"what_it_looks_for_gets_it_up", what_it_looks_for_gets_it_up},
    {"what_it_looks_for_brings_no_core", what_it_looks_for_brings_no_core},
    {"it_does_not_look_hot_on_the_core_of_another", it_does_not_look_hot_on_the_core_of_another},
    {"it_may_not_be_able_to_look", it_may_not_be_able_to_look},
    {"nobody_waits_when_the_kthreads_end", nobody_waits_when_the_kthreads_end},
};

int main(void)
{
    alarm(60);
    for (unsigned i = 0; i < sizeof scenarios / sizeof *scenarios; i++)
        for (unsigned yield_wait = 0; yield_wait < 2; yield_wait++) {
            scenario = scenarios[i].name;
            world_new(yield_wait);
            scenarios[i].fn();
            world_delete();
            printf("passed %s, %s\n", scenario, yield_wait ? "yield-wait" : "asleep");
        }
    return 0;
}
