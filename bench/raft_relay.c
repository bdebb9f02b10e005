/* See raft_relay.h. Between relays: 8 bytes of number, then what the client sent; an answer is the number alone. */
#include "raft_relay.h"
#include "../apps/kv/udp.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FOLLOWERS 2
#define NUMBER 8
#define ASKED 1024u     /* puts under way that the leader knows of */
#define KEPT (1u << 20) /* bytes in which the last puts are kept */
#define LARGEST 1400

struct asked {
    uint64_t number; /* 0: answered */
    struct cl_udp_addr from;
    uint32_t bytes;
    uint8_t data[LARGEST];
};

struct cl_bench_relay {
    struct cl_udp_socket *out, *clients; /* clients: known once one has asked */
    uint16_t port;
    uint32_t followers[FOLLOWERS];
    uint64_t next, kept; /* number of the next put; bytes kept so far */
    struct asked *asked;
    uint8_t *memory;
};

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
        for (unsigned f = 0; f < FOLLOWERS; f++)
            cl_udp_sendto(r->out, datagram, NUMBER + a->bytes, &(struct cl_udp_addr){r->followers[f], r->port, 0});
    }
}

/* A follower has it: with the leader that is a majority. */
static void answered(struct cl_bench_relay *r, const uint8_t *data)
{
    static const char stored[] = "STORED\r\n";
    uint8_t reply[CL_KV_UDP_HEADER + sizeof stored - 1];
    uint64_t number;
    memcpy(&number, data, NUMBER);
    struct asked *a = &r->asked[number % ASKED];
    if (!number || a->number != number)
        return;
    a->number = 0;
    keep(r, a->data, a->bytes);
    memcpy(reply, a->data, 2); /* the request's number; one datagram */
    memcpy(reply + 2, (const uint8_t[]){0, 0, 0, 1, 0, 0}, CL_KV_UDP_HEADER - 2);
    memcpy(reply + CL_KV_UDP_HEADER, stored, sizeof stored - 1);
    cl_udp_sendto(r->clients, reply, sizeof reply, &a->from);
}

/* The leader's, at a follower; or a follower's answer. */
static void on_relays(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    struct cl_bench_relay *r = arg;
    for (unsigned i = 0; i < n; i++) {
        struct cl_udp_req *req = &reqs[i];
        req->reply_len = 0;
        if (req->len == NUMBER && r->asked) {
            answered(r, req->data);
        } else if (req->len > NUMBER && !r->asked) {
            keep(r, req->data, (uint32_t)req->len);
            cl_udp_sendto(r->out, req->data, NUMBER, &(struct cl_udp_addr){req->peer.ipv4, r->port, 0});
        }
    }
}

int cl_bench_relay_serve(struct cl_runtime *rt, uint16_t client_port, uint16_t port, const uint32_t *followers,
                         struct cl_bench_relay **out, char *err)
{
    struct cl_bench_relay *r = calloc(1, sizeof *r);
    int rc = -ENOMEM;
    if (r) {
        r->port = port;
        r->memory = calloc(1, KEPT);
        r->asked = client_port ? calloc(ASKED, sizeof *r->asked) : NULL;
        rc = r->memory && (r->asked || !client_port) ? 0 : -ENOMEM;
    }
    if (!rc && client_port) {
        memcpy(r->followers, followers, sizeof r->followers);
        rc = cl_runtime_bind_udp_burst(rt, client_port, on_clients, r);
    }
    if (!rc)
        rc = cl_runtime_bind_udp_burst(rt, port, on_relays, r);
    if (!rc)
        rc = cl_udp_open(rt, 0, 1, &r->out);
    if (rc) {
        snprintf(err, 256, "cannot serve a relay: %s", strerror(-rc));
        cl_bench_relay_delete(r);
        return rc;
    }
    *out = r;
    return 0;
}

void cl_bench_relay_delete(struct cl_bench_relay *r)
{
    if (!r)
        return;
    free(r->memory);
    free(r->asked);
    free(r);
}
