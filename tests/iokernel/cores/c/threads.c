/* Two applications of two kthreads each fight for two cores: real threads, real ports, a running loop, under
 * sanitizers.
 *
 *   cores_threads SOCKET_PATH SEED MOVES
 *
 * Kthreads get work at random, look at once, late or only when interrupted, park with and without a time limit, and
 * change their minds; signals come that nobody asked for; policies change. Ends when cores have moved MOVES times and
 * all work that was given was done, and so shows that no wake-up is lost. Who owned what: from the log. */
#define CHECK_CONTEXT "(seed %llu; %s)", (unsigned long long)seed, err
#include "tests/support/c/check.h"

#include "../../../../drivers/port/port.h"
#include "../../../../iokernel/state/iokernel.h"
#include <corelane/runtime/clock.h>
#include <corelane/runtime/cores.h>
#include "../../../../runtime/memory.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define APPS 2
#define KTHREADS 2 /* each */
#define CORES 2
#define SIGNAL SIGURG

static char err[256];
static uint64_t seed;
static uint32_t stopping;

static uint32_t rnd(uint64_t *state, uint32_t n)
{
    *state = *state * 6364136223846793005ull + 1442695040888963407ull;
    return (uint32_t)(*state >> 33) % n;
}

/* The server: one thread, and what is asked of the iokernel later. */

static struct cl_io *io;
static pthread_mutex_t io_lock = PTHREAD_MUTEX_INITIALIZER; /* one controlling thread at a time */
static int listener, stop_fd;
static uint32_t ids[APPS];
static int32_t cpus[CORES];

static void accept_app(int fd, uint32_t at)
{
    struct cl_control_hello hello;
    struct cl_io_app_grant grant;
    CHECK(recv(fd, &hello, sizeof hello, MSG_WAITALL) == sizeof hello);
    struct cl_io_app_config c = {.ipv4 = 0x0a4d0010u + at,
                                 .mac = {2, 0, 0, 0, 0, (uint8_t)(at + 1)},
                                 .kind = hello.kind - CL_CONTROL_LATENCY,
                                 .layout = {hello.n_kthreads, 64, 64, 64, 64, 512}};
    memcpy(c.name, hello.name, sizeof c.name);
    CHECK(cl_io_app_add(io, &c, &grant, err) == 0);
    struct cl_control_accept a = {.header = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_ACCEPT, sizeof a, 0},
                                  .app = grant.app,
                                  .layout = grant.layout,
                                  .generation = cl_io_generation(io),
                                  .state_bytes = cl_io_state_bytes(io),
                                  .managed = 1,
                                  .slot = grant.slot,
                                  .ipv4 = c.ipv4,
                                  .ipv4_prefix = 16,
                                  .mtu = cl_io_mtu(io)};
    memcpy(a.mac, c.mac, 6);
    int fds[3] = {grant.arena_fd, cl_io_state_fd(io), grant.doorbell_fd};
    CHECK(cl_fds_send(fd, &a, sizeof a, fds, 3) == sizeof a);
    ids[at] = grant.app;
}

/* It tells its threads, or has gone. */
static void hear(struct pollfd *p, uint32_t id)
{
    struct cl_control_kthreads k;
    struct cl_control_header ok = {CL_CONTROL_MAGIC, CL_CONTROL_VERSION, CL_CONTROL_KTHREADS_OK, sizeof ok, 0};
    if (recv(p->fd, &k, sizeof k, MSG_WAITALL) == sizeof k) {
        CHECK(cl_io_app_threads(io, id, getpid(), k.tids, k.n, k.signal, err) == 0);
        CHECK(send(p->fd, &ok, sizeof ok, 0) == sizeof ok);
        return;
    }
    CHECK(cl_io_app_remove(io, id, NULL, err) == 0);
    close(p->fd);
    p->fd = -1;
}

static void *serve(void *arg)
{
    struct pollfd fds[2 + APPS] = {{stop_fd, POLLIN, 0}, {listener, POLLIN, 0}, {-1, POLLIN, 0}, {-1, POLLIN, 0}};
    uint32_t n = 0;
    (void)arg;
    while (poll(fds, 2 + APPS, -1) > 0 && !fds[0].revents) {
        pthread_mutex_lock(&io_lock);
        for (uint32_t i = 0; i < n; i++)
            if (fds[2 + i].revents)
                hear(&fds[2 + i], ids[i]);
        if (fds[1].revents) {
            fds[2 + n].fd = accept(listener, NULL, NULL);
            accept_app(fds[2 + n].fd, n);
            n++;
        }
        pthread_mutex_unlock(&io_lock);
    }
    return NULL;
}

static void set_policy(uint64_t *state)
{
    static const char *names[] = {"delay", "fair", "shenango", "attained"};
    struct cl_policy_setting s = {.fn = cl_policy_find(names[rnd(state, 4)])};
    pthread_mutex_lock(&io_lock);
    CHECK(s.fn && cl_io_policy_set(io, &s, err) > 0);
    pthread_mutex_unlock(&io_lock);
}

static void server_start(const char *path, pthread_t *server)
{
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    struct cl_io_config config = {.poll = CL_IO_ADAPTIVE,
                                  .spin_us = 20,
                                  .pause_us = 20,
                                  .cpus = {-1},
                                  .manage_cores = 1,
                                  .n_worker_cpus = CORES,
                                  .cede_us = 20,
                                  .interrupt_us = 2000,
                                  .start_us = 100000};
    memcpy(config.worker_cpus, cpus, sizeof cpus);
    snprintf(addr.sun_path, sizeof addr.sun_path, "%s", path);
    CHECK(cl_io_new(&config, &io, err) == 0 && cl_io_start(io, err) == 0);
    stop_fd = eventfd(0, 0);
    listener = socket(AF_UNIX, SOCK_STREAM, 0);
    CHECK(bind(listener, (struct sockaddr *)&addr, sizeof addr) == 0 && listen(listener, 8) == 0);
    CHECK(pthread_create(server, NULL, serve, NULL) == 0);
}

/* The applications. */

struct kthread {
    struct cl_cores *cores;
    struct cl_signals *signals;
    unsigned index;
    uint64_t random, done;
    uint64_t given; /* writer: main, relaxed; the kthread sees it by `signals` */
    int32_t tid;    /* release, when it runs */
    pthread_t thread;
};

static struct kthread kthreads[APPS][KTHREADS];
static __thread struct kthread *self;
static __thread volatile sig_atomic_t in_foreign, ceded; /* computes without a look; waits already */

/* As libos does in foreign code: wait in place. */
static void on_signal(int signal)
{
    struct kthread *k = self;
    int code = errno;
    (void)signal;
    if (k && in_foreign && !ceded && k->cores->ops->lost(k->cores, k->index)) {
        ceded = 1;
        k->cores->ops->cede(k->cores, k->index);
        ceded = 0;
    }
    errno = code;
}

static void look(struct kthread *k)
{
    if (!(cl_load_relaxed(k->cores->preempt) >> k->index & 1) || !k->cores->ops->lost(k->cores, k->index))
        return;
    ceded = 1;
    k->cores->ops->cede(k->cores, k->index);
    ceded = 0;
}

static void spin(uint32_t turns)
{
    for (uint32_t i = 0; i < turns; i++)
        __asm__ volatile("");
}

static bool has_work(const struct kthread *k)
{
    return cl_load_acquire(&k->signals->runq_tail) != cl_load_relaxed(&k->signals->runq_head);
}

static void work(struct kthread *k)
{
    cl_store_relaxed(&k->signals->in_uthread, 1);
    if (rnd(&k->random, 8) == 0) { /* foreign code */
        in_foreign = 1;
        for (uint32_t i = rnd(&k->random, 50); i; i--) {
            spin(2000);
            getppid(); /* TSan runs handlers at calls only */
        }
        in_foreign = 0;
    } else {
        for (uint32_t i = rnd(&k->random, 20); i; i--) {
            spin(rnd(&k->random, 500));
            look(k);
        }
    }
    cl_store_relaxed(&k->signals->switches, k->signals->switches + 1);
    cl_store_relaxed(&k->signals->runq_head, k->signals->runq_head + 1);
    cl_store_relaxed(&k->signals->in_uthread, 0);
    cl_store_relaxed(&k->done, k->done + 1);
}

static void rest(struct kthread *k)
{
    struct cl_cores *c = k->cores;
    if (!c->ops->wanted(c, k->index) && rnd(&k->random, 4))
        return;
    ceded = 1;
    if (!c->ops->park_begin(c, k->index)) {
        usleep(100); /* not managed yet, or to end */
    } else if (has_work(k) || rnd(&k->random, 16) == 0) {
        c->ops->park_cancel(c, k->index);
    } else {
        c->ops->park_wait(c, k->index, rnd(&k->random, 4) ? -1 : (int64_t)rnd(&k->random, 200000), NULL);
    }
    ceded = 0;
}

static void *run(void *arg)
{
    struct kthread *k = self = arg;
    cl_store_release(&k->tid, (int32_t)syscall(SYS_gettid));
    while (!cl_load_acquire(&stopping)) {
        look(k);
        if (!k->cores->ops->managed(k->cores))
            usleep(100);
        else if (has_work(k))
            work(k);
        else
            rest(k);
    }
    return NULL;
}

static void app_start(const char *path, uint32_t at, struct cl_nic **nic)
{
    static const char *names[APPS] = {"latency", "batch"};
    struct cl_port_config c = {.socket_path = path,
                               .name = names[at],
                               .n_kthreads = KTHREADS,
                               .kind = at ? CL_CONTROL_BATCH : CL_CONTROL_LATENCY};
    int32_t tids[KTHREADS];
    CHECK(cl_port_nic_new(&c, nic, err) == 0);
    struct cl_cores *cores = (*nic)->cores;
    for (unsigned i = 0; i < KTHREADS; i++) {
        struct kthread *k = &kthreads[at][i];
        *k = (struct kthread){.cores = cores,
                              .signals = cores->ops->signals(cores, i),
                              .index = i,
                              .random = seed * 31 + at * KTHREADS + i};
        CHECK(pthread_create(&k->thread, NULL, run, k) == 0);
        while (!(tids[i] = cl_load_acquire(&k->tid)))
            usleep(100);
    }
    CHECK(cores->ops->threads(cores, tids, KTHREADS, SIGNAL, err) == 0);
}

/* Some for a kthread, by another thread. */
static void give(struct kthread *k, uint32_t n)
{
    k->given += n;
    __atomic_fetch_add(&k->signals->runq_tail, n, __ATOMIC_RELEASE);
    k->cores->ops->help(k->cores);
}

static struct cl_io_cores_stats counted(void)
{
    struct cl_io_cores_stats s;
    CHECK(cl_io_cores_stats(io, 0, &s) == 0);
    return s;
}

static bool all_done(void)
{
    bool all = true;
    for (unsigned a = 0; a < APPS; a++)
        for (unsigned i = 0; i < KTHREADS; i++)
            all &= cl_load_relaxed(&kthreads[a][i].done) == kthreads[a][i].given;
    return all;
}

/* What the iokernel's log said so far. */
static uint64_t log_next, log_evicted;
static uint32_t log_owner[CORES];

/* Read often enough that the loop does not get round its log meanwhile: wakes are in it, too. */
static void check_log(void)
{
    struct cl_io_move m[256];
    uint64_t lost = 0;
    for (uint32_t n; (n = cl_io_moves(io, 0, &log_next, m, 256, &lost)) > 0;)
        for (uint32_t i = 0; i < n; i++) {
            CHECK(lost == 0);
            uint32_t c = m[i].core != (uint32_t)cpus[0];
            CHECK(m[i].core == (uint32_t)cpus[c] && m[i].from == log_owner[c]);
            log_owner[c] = m[i].to;
            CHECK(log_owner[0] != log_owner[1] || log_owner[0] == 0);
            log_evicted += m[i].what == CL_IO_LOG_EVICTED;
        }
    CHECK(lost == 0);
}

static void stir(uint64_t moves)
{
    uint64_t state = seed;
    for (uint64_t at = 0; counted().moves < moves; at++) {
        struct kthread *k = &kthreads[rnd(&state, APPS)][rnd(&state, KTHREADS)];
        if (k->given - cl_load_relaxed(&k->done) < 200)
            give(k, 1 + rnd(&state, 20));
        if (rnd(&state, 10) == 0)
            syscall(SYS_tgkill, getpid(), k->tid, SIGNAL);
        if (rnd(&state, 200) == 0)
            set_policy(&state);
        check_log();
        nanosleep(&(struct timespec){0, rnd(&state, 200000)}, NULL);
    }
    struct timespec nap = {0, 1000000};
    while (!all_done()) {
        check_log();
        nanosleep(&nap, NULL); /* alarm() bounds it */
    }
}

static void find_cpus(void)
{
    cpu_set_t set;
    uint32_t n = 0;
    CHECK(sched_getaffinity(0, sizeof set, &set) == 0);
    for (int32_t cpu = 0; cpu < CPU_SETSIZE && n < CORES; cpu++)
        if (CPU_ISSET(cpu, &set))
            cpus[n++] = cpu;
    CHECK(n == CORES);
}

int main(int argc, char **argv)
{
    struct cl_nic *nics[APPS];
    pthread_t server;
    uint64_t one = 1;
    CHECK(argc == 4);
    seed = strtoull(argv[2], NULL, 0);
    uint64_t moves = strtoull(argv[3], NULL, 0);
    alarm(100);
    find_cpus();
    struct sigaction sa = {.sa_handler = on_signal};
    sigaction(SIGNAL, &sa, NULL);
    server_start(argv[1], &server);
    for (uint32_t at = 0; at < APPS; at++)
        app_start(argv[1], at, &nics[at]);
    stir(moves);
    cl_store_release(&stopping, 1);
    for (uint32_t at = 0; at < APPS; at++) {
        nics[at]->cores->ops->release(nics[at]->cores);
        for (unsigned i = 0; i < KTHREADS; i++)
            CHECK(pthread_join(kthreads[at][i].thread, NULL) == 0);
        nics[at]->ops->close(nics[at]);
    }
    CHECK(write(stop_fd, &one, sizeof one) == sizeof one && pthread_join(server, NULL) == 0);
    check_log();
    cl_io_stop(io);
    check_log();
    struct cl_io_cores_stats s = counted();
    CHECK_EQ(s.evicted, log_evicted);
    CHECK(s.asked > 0);
    CHECK(s.interrupted > 0 || moves < 1000); /* on a busy machine few moves may need none */
    printf("%llu moves, %llu wakes, %llu asked, %llu interrupted, %llu evicted, %llu not started; all work was done\n",
           (unsigned long long)s.moves, (unsigned long long)s.wakes, (unsigned long long)s.asked,
           (unsigned long long)s.interrupted, (unsigned long long)s.evicted, (unsigned long long)s.not_started);
    cl_io_delete(io);
    return 0;
}
