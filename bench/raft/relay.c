/* See relay.h. Between relays: 8 bytes of number, then what the client sent; an answer is the number alone. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* pwritev2 */
#endif
#include "relay.h"
#include "../../apps/kv/udp.h"
#include <corelane/libos/complete.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#define FOLLOWERS 2
#define NUMBER 8
#define ASKED 1024u     /* puts under way that the leader knows of */
#define KEPT (1u << 20) /* bytes in which the last puts are kept */
#define LARGEST 1400
#define WRITE 4096u /* bytes of a durable write, and what it is aligned to */

struct asked {
    uint64_t number; /* 0: answered */
    bool told;       /* a follower has it */
    struct cl_udp_addr from;
    uint32_t bytes;
    uint8_t data[LARGEST];
};

/* A follower's, while its write is under way. */
struct owed {
    uint64_t number;
    struct cl_udp_addr to;
};

struct cl_bench_relay {
    struct cl_bench_relay_config config;
    struct cl_runtime *rt;
    struct cl_udp_socket *out, *clients; /* clients: known once one has asked */
    uint64_t next, kept;                 /* number of the last put; bytes kept so far */
    struct asked *asked;
    uint8_t *memory;

    struct cl_completions completions; /* on a disk */
    uint64_t has, at;                  /* the leader's: the last put that is written; where to write next */
    struct owed *owed;
    uint32_t n_owed;
    int failed;           /* errno; other threads read it */
    bool watched, writes; /* write_waiting is called; something waits to be written */
    int never;            /* an eventfd that nobody writes to */
};

static bool on_disk(const struct cl_bench_relay *r)
{
    return r->config.fd >= 0;
}

/* In the scheduler's loop, which looks at `write_waiting` once what was sent before has left. */
static void begin_write(struct cl_bench_relay *r)
{
    if (r->writes || r->failed)
        return;
    r->writes = true;
    cl_sched_in_flight(1);
}

static void pass_on(struct cl_bench_relay *r, const uint8_t *data, uint32_t bytes, uint32_t ipv4)
{
    cl_udp_sendto(r->out, data, bytes, &(struct cl_udp_addr){ipv4, r->config.port, 0});
}

static void keep(struct cl_bench_relay *r, const uint8_t *data, uint32_t bytes)
{
    if (r->kept % KEPT + bytes > KEPT)
        r->kept += KEPT - r->kept % KEPT;
    memcpy(r->memory + r->kept % KEPT, data, bytes);
    r->kept += bytes;
}

/* A client's: on to both. */
static void on_clients(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    struct cl_bench_relay *r = arg;
    r->clients = reqs[0].socket;
    for (unsigned i = 0; i < n; i++) {
        struct cl_udp_req *req = &reqs[i];
        uint8_t datagram[NUMBER + LARGEST];
        req->reply_len = 0;
        if (req->len < CL_KV_UDP_HEADER || req->len > LARGEST)
            continue;
        uint64_t number = ++r->next;
        struct asked *a = &r->asked[number % ASKED];
        *a = (struct asked){.number = number, .from = req->peer, .bytes = (uint32_t)req->len};
        memcpy(a->data, req->data, a->bytes);
        memcpy(datagram, &number, NUMBER);
        memcpy(datagram + NUMBER, req->data, a->bytes);
        for (unsigned f = 0; f < (on_disk(r) ? 1 : FOLLOWERS); f++)
            pass_on(r, datagram, NUMBER + a->bytes, r->config.followers[f]);
        if (on_disk(r))
            begin_write(r);
    }
}

/* If a follower has it and the leader does. */
static void answer(struct cl_bench_relay *r, struct asked *a)
{
    static const char stored[] = "STORED\r\n";
    uint8_t reply[CL_KV_UDP_HEADER + sizeof stored - 1];
    if (!a->number || !a->told || (on_disk(r) && a->number > r->has))
        return;
    a->number = 0;
    keep(r, a->data, a->bytes);
    memcpy(reply, a->data, 2); /* the request's number; one datagram */
    memcpy(reply + 2, (const uint8_t[]){0, 0, 0, 1, 0, 0}, CL_KV_UDP_HEADER - 2);
    memcpy(reply + CL_KV_UDP_HEADER, stored, sizeof stored - 1);
    cl_udp_sendto(r->clients, reply, sizeof reply, &a->from);
}

static void told(struct cl_bench_relay *r, const uint8_t *data)
{
    uint64_t number;
    memcpy(&number, data, NUMBER);
    struct asked *a = &r->asked[number % ASKED];
    if (a->number != number)
        return;
    a->told = true;
    answer(r, a);
}

static void write_block(struct cl_bench_relay *r)
{
    struct iovec v = {r->memory, WRITE};
    ssize_t n = pwritev2(r->config.fd, &v, 1, (off_t)r->at, RWF_DSYNC);
    if (n != WRITE)
        cl_store_relaxed(&r->failed, n < 0 ? errno : EIO);
    r->at = (r->at + WRITE) % (r->config.file_bytes / WRITE * WRITE);
}

/* One write for all that came. */
static unsigned write_waiting(void *arg, unsigned self, unsigned k)
{
    struct cl_bench_relay *r = arg;
    if (self != 0 || k != 0 || !r->writes)
        return 0;
    write_block(r);
    r->writes = false;
    cl_sched_landed(cl_runtime_sched(r->rt), 0, 1);
    if (r->failed)
        return 1;
    for (uint32_t i = 0; i < r->n_owed; i++)
        pass_on(r, (const uint8_t *)&r->owed[i].number, NUMBER, r->owed[i].to.ipv4);
    r->n_owed = 0;
    if (!r->asked)
        return 1;
    uint64_t before = r->has;
    r->has = r->next;
    for (uint64_t n = before + 1; n <= r->has; n++)
        answer(r, &r->asked[n % ASKED]);
    return 1;
}

/* A write is done when `write_waiting` returns: nobody ever waits for one. */
static void arm(void *arg, unsigned k, bool on)
{
    (void)arg, (void)k, (void)on;
}

static int never_readable(void *arg, unsigned k)
{
    (void)k;
    return ((struct cl_bench_relay *)arg)->never;
}

/* What the leader passed on. */
static void take(struct cl_bench_relay *r, const struct cl_udp_req *req)
{
    keep(r, req->data, (uint32_t)req->len);
    if (!on_disk(r)) {
        pass_on(r, req->data, NUMBER, req->peer.ipv4);
        return;
    }
    if (r->n_owed == ASKED)
        return;
    struct owed *o = &r->owed[r->n_owed++];
    memcpy(&o->number, req->data, NUMBER);
    o->to = req->peer;
    begin_write(r);
}

/* The leader's, at a follower; or a follower's answer. */
static void on_relays(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    struct cl_bench_relay *r = arg;
    for (unsigned i = 0; i < n; i++) {
        struct cl_udp_req *req = &reqs[i];
        req->reply_len = 0;
        if (req->len == NUMBER && r->asked) {
            told(r, req->data);
        } else if (req->len > NUMBER && !r->asked) {
            take(r, req);
        }
    }
}

static int allocate(struct cl_bench_relay *r)
{
    void *memory = NULL;
    if (posix_memalign(&memory, WRITE, KEPT))
        return -ENOMEM;
    r->memory = memset(memory, 0, KEPT);
    r->asked = r->config.client_port ? calloc(ASKED, sizeof *r->asked) : NULL;
    r->owed = calloc(ASKED, sizeof *r->owed);
    return r->owed && (r->asked || !r->config.client_port) ? 0 : -ENOMEM;
}

static int watch_writes(struct cl_bench_relay *r, char *err)
{
    r->never = eventfd(0, EFD_CLOEXEC);
    if (r->never < 0)
        return -errno;
    r->completions = (struct cl_completions){.arg = r, .poll = write_waiting, .arm = arm, .fd = never_readable};
    int rc = cl_sched_completions_add(cl_runtime_sched(r->rt), &r->completions, err);
    r->watched = !rc;
    return rc;
}

int cl_bench_relay_serve(struct cl_runtime *rt, const struct cl_bench_relay_config *config, struct cl_bench_relay **out,
                         char *err)
{
    struct cl_bench_relay *r = calloc(1, sizeof *r);
    int rc = -ENOMEM;
    if (r) {
        r->config = *config;
        r->rt = rt;
        r->never = -1;
        rc = allocate(r);
    }
    if (!rc && on_disk(r) && config->file_bytes < WRITE)
        rc = -EINVAL;
    if (!rc && config->client_port)
        rc = cl_runtime_bind_udp_burst(rt, config->client_port, on_clients, r);
    if (!rc)
        rc = cl_runtime_bind_udp_burst(rt, config->port, on_relays, r);
    if (!rc)
        rc = cl_udp_open(rt, 0, 1, &r->out);
    if (!rc && on_disk(r))
        rc = watch_writes(r, err);
    if (rc) {
        snprintf(err, 256, "cannot serve a relay: %s", strerror(-rc));
        cl_bench_relay_delete(r);
        return rc;
    }
    *out = r;
    return 0;
}

int cl_bench_relay_failed(const struct cl_bench_relay *r)
{
    return cl_load_relaxed(&r->failed);
}

void cl_bench_relay_delete(struct cl_bench_relay *r)
{
    if (!r)
        return;
    if (r->watched)
        cl_sched_completions_remove(cl_runtime_sched(r->rt), &r->completions);
    if (r->never >= 0)
        close(r->never);
    free(r->memory);
    free(r->asked);
    free(r->owed);
    free(r);
}
