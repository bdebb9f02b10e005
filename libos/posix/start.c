/* The process's runtime: made when a call first needs it. After a fork the child has no kthreads, and may only close
 * what is ours; a child of a process that had not made one yet may make its own. */
#include "config.h"
#include "counts.h"
#include "family.h"
#include "kthreads.h"
#include "linux.h"
#include "socket.h"
#include "waits.h"

#include "../nics.h"

#include <corelane/libos/adopt.h>

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define BUSY_NS 10000000 /* between two looks whether a NIC is free */
#define BUSY_TRIES 20
#define TRY_NS 1000000000 /* between two tries to make the runtime, by a process that was forked */
#define SPIN_NS 50000     /* adaptive: to be woken from epoll takes some 35 us in a VM, which a client waits for */
#define END_NS 100000000  /* for what is still to be sent at the end, by kthreads that have threads of their own */

static struct cl_posix_config config;
static struct cl_runtime *made; /* set once, release. Whoever binds or listens from then on opens its socket itself */
static struct cl_runtime
    *runtime;             /* the same, once all that was bound before is open: else a connect might find nobody */
static int interface = 1; /* cl_posix_interface; written before that */
static uint32_t *here;    /* 1: this process has made the runtime. Written before `made`; 0 in a child by itself */
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;
static uint64_t next_try_ns; /* under it. 0: no try has failed */
static void (*say_fn)(const char *sentence);
static void (*failed_fn)(const char *sentence);

void cl_posix_say(const char *sentence)
{
    say_fn(sentence);
}

int64_t cl_posix_refuse(const char *sentence, int error)
{
    static const char *said[CL_POSIX_REASONS]; /* each sentence once */
    for (unsigned i = 0; i < CL_POSIX_REASONS; i++) {
        const char *nothing = NULL;
        struct cl_posix_reason *reason = &cl_posix_counts()->reasons[i];
        bool first =
            __atomic_compare_exchange_n(&said[i], &nothing, sentence, false, __ATOMIC_RELAXED, __ATOMIC_RELAXED);
        if (!first && nothing != sentence)
            continue;
        __atomic_fetch_add(&reason->times, 1, __ATOMIC_RELAXED);
        if (first) {
            snprintf(reason->sentence, sizeof reason->sentence, "%s", sentence);
            say_fn(sentence);
        }
        break;
    }
    return -error;
}

void *cl_posix_wiped_page(void)
{
    size_t bytes = (size_t)sysconf(_SC_PAGESIZE);
    void *page = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED)
        return NULL;
    (void)madvise(page, bytes, MADV_WIPEONFORK); /* before Linux 4.14: by fork alone (in_child) */
    return page;
}

static void in_child(void)
{
    *here = 0;
    if (made)
        cl_posix_inner_forget();
}

int cl_posix_open(const char *words, uint8_t *kinds, void (*say)(const char *sentence),
                  void (*failed)(const char *sentence), char err[256])
{
    int rc = cl_posix_parse(words, &config, err);
    if (rc)
        return rc;
    if (!cl_posix_counts() && (rc = cl_posix_counts_open(NULL, 0))) {
        snprintf(err, 256, "%s", strerror(-rc));
        return rc;
    }
    say_fn = say;
    failed_fn = failed;
    cl_posix_counts()->traces = config.trace;
    cl_posix_inner_given(config.xskmap_fd);
    cl_posix_inner_given(config.link_fd);
    here = cl_posix_wiped_page();
    rc = here ? cl_posix_table_open(kinds) : -ENOMEM;
    if (rc || (rc = -pthread_atfork(NULL, NULL, in_child)))
        snprintf(err, 256, "%s", strerror(-rc));
    return rc;
}

bool cl_posix_traces(void)
{
    return config.trace;
}

void cl_posix_trace(int fd, const char *call, uint32_t ipv4, uint16_t port, bool ours)
{
    char line[160], name[INET_ADDRSTRLEN];
    if (cl_likely(!config.trace))
        return;
    inet_ntop(AF_INET, &(uint32_t){htonl(ipv4)}, name, sizeof name);
    snprintf(line, sizeof line, "descriptor %d: %s %s:%u: %s", fd, call, name, port,
             ours ? "the dataplane's" : "Linux'");
    say_fn(line);
}

bool cl_posix_started(void)
{
    return cl_load_acquire(&made);
}

bool cl_posix_is_forked(void)
{
    /* Relaxed: a child is alone. `here` was written before `made`. */
    return cl_load_acquire(&made) && !cl_load_relaxed(here);
}

bool cl_posix_is_child(void)
{
    if (cl_likely(!cl_posix_is_forked()))
        return false;
    (void)cl_posix_refuse("this process was forked from the one that has the sockets: here they can be closed, and no "
                          "more; let the parent serve them",
                          ECHILD);
    return true;
}

/* Our address and the length of its prefix: attached, only the iokernel knows. False: there is no runtime to be had. */
static bool find_address(struct cl_runtime_info *info)
{
    int rc;
    *info = (struct cl_runtime_info){.ipv4 = config.address, .ipv4_prefix = config.prefix};
    struct cl_runtime *rt = config.address ? NULL : cl_posix_start(&rc);
    if (rt)
        cl_runtime_info(rt, info);
    return info->ipv4;
}

uint32_t cl_posix_address(void)
{
    struct cl_runtime_info info;
    return find_address(&info) ? info.ipv4 : 0;
}

int cl_posix_interface(void)
{
    return interface;
}

/* Whether a listener there is among those that are named. One at all addresses counts as at our own. */
static bool is_named(uint32_t ipv4, uint16_t port)
{
    struct cl_runtime_info info;
    bool named = config.n_patterns == 0;
    for (uint32_t i = 0; i < config.n_patterns && !named; i++) {
        const struct cl_posix_pattern *p = &config.patterns[i];
        if (p->port && p->port != port)
            continue;
        if (p->mask && ipv4 == INADDR_ANY && find_address(&info))
            ipv4 = info.ipv4;
        named = (ipv4 & p->mask) == p->address;
    }
    return named;
}

bool cl_posix_loops(uint32_t ipv4)
{
    return config.loopback && ipv4 >> 24 == 127;
}

bool cl_posix_is_own(uint32_t ipv4)
{
    return ipv4 == cl_posix_address() || cl_posix_loops(ipv4);
}

bool cl_posix_listens_at(uint32_t ipv4, uint16_t port)
{
    struct cl_runtime_info info;
    if (!is_named(ipv4, port))
        return false;
    if (ipv4 == INADDR_ANY || ipv4 >> 24 == 127)
        return ipv4 == INADDR_ANY || config.loopback;
    return find_address(&info) && ipv4 == info.ipv4;
}

bool cl_posix_reaches(uint32_t ipv4)
{
    struct cl_runtime_info info;
    if (ipv4 >> 24 == 127 || ipv4 == INADDR_ANY || ipv4 >= 0xe0000000u || !find_address(&info))
        return false;
    uint32_t mask = info.ipv4_prefix ? UINT32_MAX << (32 - info.ipv4_prefix) : 0;
    if (info.ipv4_prefix < 31 && (ipv4 | mask) == UINT32_MAX)
        return false; /* everybody there: Linux' */
    return config.gateway || ((ipv4 ^ info.ipv4) & mask) == 0;
}

/* Making it. */

static void on_event(void *arg, int event, const char *text)
{
    (void)arg;
    if (event != CL_EVENT_ATTACHED)
        say_fn(text);
}

/* Where it has just been another process's Linux may need a moment. */
static int open_soon(const struct cl_nic_choice *choice, struct cl_nic **nic, char *err)
{
    int rc = cl_nic_choose(choice, nic, err);
    for (unsigned i = 0; rc == -EBUSY && i < BUSY_TRIES; i++) {
        (void)cl_linux(SYS_ppoll, NULL, 0, &(struct timespec){0, BUSY_NS}, NULL, 0);
        rc = cl_nic_choose(choice, nic, err);
    }
    return rc;
}

static int open_nic(struct cl_nic **nic, char *err)
{
    struct cl_nic_choice choice = {.name = config.nic,
                                   .queues = config.kthreads,
                                   .address = config.address,
                                   .host = config.host,
                                   .host_prefix = config.host_prefix,
                                   .xskmap_fd = config.xskmap_fd};
    int rc = open_soon(&choice, nic, err);
    const char *name = strchr(config.nic, ':');
    int index = rc == 0 && name ? (int)if_nametoindex(name + 1) : 0;
    interface = cl_max(index, 1);
    if (rc == 0 &&
        config.xskmap_fd >= 0) { /* from now on a program that this one becomes, or starts, has nothing of it */
        (void)cl_linux(SYS_close, config.xskmap_fd);
        (void)cl_linux(SYS_fcntl, config.link_fd, F_SETFD, FD_CLOEXEC);
    }
    return rc;
}

static int make(struct cl_runtime **out, char err[256])
{
    struct cl_nic *nic = NULL;
    int rc = config.nic[0] ? open_nic(&nic, err) : 0;
    if (rc)
        return rc;
    struct cl_runtime_config c = {.nic = nic,
                                  .socket_path = nic ? NULL : config.socket,
                                  .name = config.name[0] ? config.name : NULL,
                                  .kthreads = config.kthreads,
                                  .adopted = config.kthreads,
                                  .adopted_unless_managed = 1,
                                  .poll = config.poll,
                                  .poll_set = 1,
                                  .spin_ns = SPIN_NS,
                                  .ipv4 = nic ? config.address : 0,
                                  .ipv4_prefix = nic ? config.prefix : 0,
                                  .gateway = nic ? config.gateway : 0,
                                  .trace = config.record,
                                  .on_event = on_event};
    rc = cl_runtime_new(&c, out, err);
    if (rc == 0 && (rc = cl_runtime_start(*out, err)))
        cl_runtime_delete(*out);
    if (rc && nic)
        cl_nic_close(nic);
    return rc;
}

static void open_socket(struct cl_posix_object *o)
{
    struct cl_posix_socket *s = (struct cl_posix_socket *)o;
    uint32_t state = cl_load_acquire(&s->state);
    int rc = s->datagram && state == CL_POSIX_BOUND      ? cl_posix_datagram_open(s, made)
             : !s->datagram && state == CL_POSIX_LISTENS ? cl_posix_listener_open(s, made)
                                                         : 0;
    if (rc)
        say_fn("a socket cannot be opened: there are as many as may be");
}

/* It could not be made, by a process that was forked. */
static void try_later(char err[256])
{
    static char sentence[sizeof((struct cl_posix_reason *)NULL)->sentence];
    cl_posix_family_give_up();
    if (!sentence[0])
        snprintf(sentence, sizeof sentence, "its sockets wait, and it tries again each second: %.180s", err);
    cl_posix_say_once(sentence);
    next_try_ns = cl_posix_deadline(TRY_NS);
    err[0] = 0;
}

/* This process has the runtime now. Returns as start_now. */
static int start_claimed(char err[256])
{
    struct cl_runtime *rt;
    int rc = make(&rt, err);
    if (rc) {
        if (!cl_posix_family_is_forked())
            return rc;
        try_later(err);
        return -EAGAIN;
    }
    if ((rc = cl_posix_kthreads_open(rt))) {
        snprintf(err, 256, "its kthreads cannot be turned: %s", cl_adopt_error(rc));
        return rc;
    }
    cl_store_relaxed(here, 1);
    cl_store_release(&made, rt);
    cl_fence_seq_cst(); /* see listen */
    cl_posix_each(CL_POSIX_SOCKET, open_socket);
    cl_store_release(&runtime, rt);
    if ((rc = cl_posix_kthreads_care()))
        snprintf(err, 256, "there is no thread to care for its kthreads: %s", strerror(-rc));
    return rc;
}

/* Under `starting`. -EAGAIN, and err is left empty: not yet. Else there will be none. */
static int start_now(char err[256])
{
    if (next_try_ns && cl_posix_left(next_try_ns))
        return -EAGAIN;
    int rc = cl_posix_family_claim();
    if (rc) {
        cl_posix_say_once(
            "another process of this program has the sockets of the dataplane, and this one serves none until "
            "that ends; have one process serve, as nginx does with worker_processes 1");
        return rc;
    }
    bool raised = cl_posix_inner_raise(); /* there are numbers for its descriptors, whatever the program's limit is */
    rc = start_claimed(err);
    if (raised)
        cl_posix_inner_lower();
    return rc;
}

struct cl_runtime *cl_posix_start(int *rc)
{
    char err[256] = "";
    *rc = 0;
    if (cl_likely(cl_load_acquire(&runtime) != NULL))
        return runtime;
    pthread_mutex_lock(&starting);
    if (!runtime)
        *rc = start_now(err);
    pthread_mutex_unlock(&starting);
    if (*rc && err[0])
        failed_fn(err);
    return cl_load_acquire(&runtime);
}

struct cl_runtime *cl_posix_start_until(struct cl_posix_object *held, uint64_t deadline_ns, int *rc)
{
    struct pollfd fds[2];
    struct cl_runtime *rt;
    while (!(rt = cl_posix_start(rc)) && *rc == -EAGAIN && cl_posix_left(deadline_ns)) {
        *rc = cl_posix_family_sleep(fds, 0, deadline_ns, NULL, held);
        if (*rc < 0 && !(*rc == -EINTR && cl_posix_goes_on(deadline_ns)))
            break;
    }
    return rt;
}

static void end_socket(struct cl_posix_object *o)
{
    cl_posix_socket_end((struct cl_posix_socket *)o);
}

void cl_posix_end(void)
{
    if (cl_posix_is_forked() || !cl_load_acquire(&runtime))
        return;
    cl_posix_each(CL_POSIX_SOCKET, end_socket);
    if (cl_posix_kthreads_managed())
        (void)cl_runtime_stop(runtime, END_NS);
    else
        cl_posix_turn_all();
}
