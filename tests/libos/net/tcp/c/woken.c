/* cl_tcp_wake: a hub on which each byte that somebody sends goes to everybody. The hub's connections are woken by
 * whoever works on another one, while they are idle, ready, or worked on; what was to be told is told, and once they
 * are over nobody wakes them. Callbacks wait for a lock, and write when they have it, perhaps on another kthread.
 *
 * argv: kthreads of each runtime, connections, bytes that each sends. Prints "ok". */
#include "tests/libos/net/c/pair.h"

#include <errno.h>
#include <stdlib.h>

#define PORT 9
#define MOST 256

/* At the hub. */
struct member {
    struct cl_tcp_conn *c;
    uint64_t owed;
    struct member *next, *prev;
};

static struct cl_mutex lock; /* of all members */
static struct member *members;
static uint64_t woken, wakes; /* under the lock */

/* At the other end. */
static struct {
    uint64_t wrote, read;
    bool ended;
} guests[MOST];
static unsigned n_guests;
static uint64_t each, total;

static void pay(struct member *m)
{
    static const uint8_t bytes[4096];
    while (m->owed) {
        int64_t n = cl_tcp_write(m->c, bytes, (int64_t)cl_min(m->owed, sizeof bytes));
        if (n <= 0)
            return;
        m->owed -= (uint64_t)n;
    }
}

static int64_t hub_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)c, (void)data, (void)arg;
    CHECK_EQ(cl_mutex_lock(&lock), 0);
    for (struct member *m = members; m; m = m->next) {
        m->owed += (uint64_t)len;
        CHECK_EQ(cl_tcp_wake(m->c), 0); /* itself, too */
        wakes++;
    }
    cl_mutex_unlock(&lock);
    return len;
}

static void hub_writable(struct cl_tcp_conn *c, void *arg)
{
    (void)c;
    CHECK_EQ(cl_mutex_lock(&lock), 0);
    pay(arg);
    cl_mutex_unlock(&lock);
}

static void hub_woken(struct cl_tcp_conn *c, void *arg)
{
    CHECK_EQ(cl_mutex_lock(&lock), 0);
    woken++;
    cl_mutex_unlock(&lock);
    hub_writable(c, arg);
}

static void hub_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void hub_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct member *m = arg;
    (void)c, (void)error;
    bool held = cl_mutex_lock(&lock) == 0; /* when the runtime stops there is nobody else */
    *(m->prev ? &m->prev->next : &members) = m->next;
    if (m->next)
        m->next->prev = m->prev;
    if (held)
        cl_mutex_unlock(&lock);
    free(m);
}

static const struct cl_tcp_events hub_events = {
    .data = hub_data, .writable = hub_writable, .eof = hub_eof, .ended = hub_ended, .woken = hub_woken};

static void tell_all(void);

static void hub_opened(struct cl_tcp_conn *c, void *arg)
{
    struct member *m = calloc(1, sizeof *m);
    static unsigned came;
    (void)arg;
    CHECK(m != NULL);
    CHECK_EQ(cl_mutex_lock(&lock), 0);
    m->c = c;
    m->next = members;
    if (members)
        members->prev = m;
    members = m;
    unsigned n = ++came;
    cl_mutex_unlock(&lock);
    cl_tcp_set_user(c, &hub_events, m);
    if (n == n_guests) /* all are there: guests may begin */
        tell_all();
}

static const struct cl_tcp_events arriving = {.opened = hub_opened};

/* The first byte to each guest says that it may begin. */
static void tell_all(void)
{
    CHECK_EQ(cl_mutex_lock(&lock), 0);
    for (struct member *m = members; m; m = m->next) {
        m->owed++;
        CHECK_EQ(cl_tcp_wake(m->c), 0);
        wakes++;
    }
    cl_mutex_unlock(&lock);
}

static void guest_write(struct cl_tcp_conn *c, unsigned i)
{
    static const uint8_t bytes[64];
    while (guests[i].wrote < each) {
        int64_t n = cl_tcp_write(c, bytes, (int64_t)cl_min(each - guests[i].wrote, sizeof bytes));
        CHECK(n >= 0);
        if (n == 0)
            return;
        guests[i].wrote += (uint64_t)n;
    }
}

static int64_t guest_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    unsigned i = (unsigned)(uintptr_t)arg;
    (void)data;
    guests[i].read += (uint64_t)len;
    CHECK(guests[i].read <= total + 1);
    guest_write(c, i);
    if (guests[i].read == total + 1)
        cl_tcp_close(c);
    return len;
}

static void guest_writable(struct cl_tcp_conn *c, void *arg)
{
    guest_write(c, (unsigned)(uintptr_t)arg);
}

static void guest_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    unsigned i = (unsigned)(uintptr_t)arg;
    (void)c;
    CHECK_EQ(error, 0);
    CHECK(!guests[i].ended);
    guests[i].ended = true;
    cl_wait_group_done(&all);
}

static const struct cl_tcp_events guest_events = {.data = guest_data, .writable = guest_writable, .ended = guest_ended};

static void connect_all(void *arg)
{
    for (unsigned i = 0; i < n_guests; i++)
        CHECK_EQ(cl_runtime_connect_tcp(arg, IP_B, PORT, &guest_events, (void *)(uintptr_t)i), 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 4);
    unsigned kthreads = (unsigned)atoi(argv[1]);
    n_guests = (unsigned)atoi(argv[2]);
    each = strtoull(argv[3], NULL, 0);
    total = each * n_guests;
    CHECK(n_guests <= MOST);
    pair_new(kthreads, kthreads, 0);
    CHECK_EQ(cl_runtime_listen_tcp(rt_b, PORT, 4096, &arriving, NULL), 0);
    static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    CHECK_EQ(cl_runtime_add_neighbour(rt_a, IP_B, macs[1]), 0);
    CHECK_EQ(cl_runtime_add_neighbour(rt_b, IP_A, macs[0]), 0);
    pair_start();
    cl_wait_group_add(&all, (int32_t)n_guests);
    CHECK_EQ(cl_runtime_spawn(rt_a, connect_all, rt_a), 0);
    pair_wait();
    pair_stop();
    for (unsigned i = 0; i < n_guests; i++)
        CHECK_EQ(guests[i].read, total + 1);
    CHECK(woken > 0 && woken <= wakes, "%llu of %llu", (unsigned long long)woken, (unsigned long long)wakes);
    CHECK(members == NULL);
    pair_delete();
    puts("ok");
    return 0;
}
