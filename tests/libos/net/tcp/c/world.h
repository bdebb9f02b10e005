/* A world for the state machine of TCP: two hosts, a network between them that loses, delays, doubles and overtakes,
 * and a clock that goes from event to event. One thread, no NIC; all of it follows from a seed.
 *
 * A referee reads each segment as bytes: window edges never move left, nobody sends beyond the edge, nor a byte that
 * differs from what it said before; after each turn a connection is what cl_tcp_invariant says. */
#ifndef TESTS_LIBOS_TCP_WORLD_H
#define TESTS_LIBOS_TCP_WORLD_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

static uint64_t now_ns = 1000000000;
static int verbose;
#ifndef CHECK_CONTEXT
#define CHECK_CONTEXT "at %.6f s", (double)now_ns / 1e9
#endif
#include "tests/support/c/check.h"

#include "libos/net/tcp/machine.h"

#define MS CL_TCP_MS
#define SECOND 1000000000ull
#define HOST_CONNS 8
#define MOST_UNDER_WAY 65536
#define SEGMENT_MOST 9100
#define FRAMING 58 /* bytes of a segment's frame on the wire: IPv4, Ethernet, checksum, preamble, gap */

struct host;

struct user {
    struct host *host;
    struct cl_tcp_conn conn;
    struct cl_flow_key key;
    bool used;
    void *app; /* of the test */
};

struct host {
    unsigned index;
    uint32_t ip;
    struct cl_tcp_stack stack;
    struct cl_tcp_counts counts;
    struct cl_tcp_turn turn;
    struct cl_tcp_listener listener;
    uint16_t listens; /* port, host order; 0: none */
    bool mute;        /* it takes and sends nothing: unplugged */
    bool no_buffers;  /* it cannot send for now */
    struct user users[HOST_CONNS];
};

/* In 1/1000 of segments, and ns. */
struct network {
    unsigned loss, twice, late, marked;
    unsigned in_a_row; /* so many are lost one after the other in a direction, at most; 0: no bound. With a bound, no
                        * connection has a reason to give up, however many rounds there are. */
    uint64_t delay_ns, jitter_ns, late_ns;
    uint64_t gbps; /* of each direction, with a queue that loses nothing; 0: no bound */
};

struct flying {
    uint64_t at_ns, order;
    unsigned to;
    uint32_t len;
    uint8_t *bytes;
    uint8_t ecn;
};

static struct host hosts[2];
static struct network network;
static uint64_t world_random = 88172645463325252ull;
static struct flying flying[MOST_UNDER_WAY];
static unsigned n_flying;
static uint64_t n_flown, n_lost;
static bool no_prediction;                    /* of hosts made from now on */
static uint64_t said = 0xcbf29ce484222325ull; /* a hash of all that left, and when */
static uint8_t *keepable;                     /* memory of the segment that is arriving, if the host may keep it */
static unsigned n_kept, most_kept = 64;       /* memories of segments, as of a NIC */
static unsigned lost_in_a_row[2];             /* by receiver */
static uint64_t wire_free_ns[2];              /* when a direction has sent what waits for it; by receiver */
/* Of the test: sees each segment that leaves; true: it is lost. NULL: none. */
static bool (*intercept)(unsigned from, const struct cl_tcp_segment *s);

static inline unsigned chance(void)
{
    return (unsigned)(next_random(&world_random) >> 11) % 1000;
}

static inline uint64_t below(uint64_t n)
{
    return n ? (next_random(&world_random) >> 11) % n : 0;
}

static const char *flags_name(uint8_t flags)
{
    static char text[9];
    unsigned n = 0;
    for (unsigned i = 0; i < 8; i++)
        if (flags >> i & 1)
            text[n++] = "FSRPAUEC"[i];
    text[n] = 0;
    return text;
}

static void show(const char *what, unsigned host, const struct cl_tcp_segment *s)
{
    if (verbose)
        printf("%10.6f %c %-5s %-4s seq %u len %u ack %u win %u sacks %u\n", (double)now_ns / 1e9, 'A' + (int)host,
               what, flags_name(s->flags), s->seq, s->len, s->ack, s->window, s->options.n_sack);
}

static void fly(unsigned to, const uint8_t *bytes, uint32_t len, uint8_t ecn, uint64_t in_ns)
{
    CHECK(n_flying < MOST_UNDER_WAY);
    uint8_t *copy = malloc(len);
    memcpy(copy, bytes, len);
    flying[n_flying++] = (struct flying){now_ns + in_ns, n_flown++, to, len, copy, ecn};
}

/* One segment on its way, with what happens to it there. */
static void send_bytes(unsigned to, const uint8_t *bytes, uint32_t len, uint8_t ecn)
{
    uint64_t in_ns = network.delay_ns + below(network.jitter_ns);
    if (network.gbps) {
        wire_free_ns[to] = cl_max(wire_free_ns[to], now_ns) + (len + FRAMING) * 8 / network.gbps;
        in_ns += wire_free_ns[to] - now_ns;
    }
    if (chance() < network.loss && (!network.in_a_row || lost_in_a_row[to] < network.in_a_row)) {
        lost_in_a_row[to]++;
        n_lost++;
        return;
    }
    lost_in_a_row[to] = 0;
    if (chance() < network.late)
        in_ns += below(network.late_ns);
    if (ecn && network.marked && chance() < network.marked)
        ecn = CL_TCP_CE;
    fly(to, bytes, len, ecn, in_ns);
    if (chance() < network.twice)
        fly(to, bytes, len, ecn, in_ns + below(network.late_ns + 1));
}

/* The referee. */
struct seen {
    bool any, scaled;
    uint32_t edge; /* right edge of the window that it offered, as the other may understand it */
    unsigned scale;
};
static struct seen seen[2][HOST_CONNS];

static void referee(struct user *u, const struct cl_tcp_segment *s)
{
    struct seen *me = &seen[u->host->index][u - u->host->users];
    if (s->flags & CL_TCPF_RST)
        return;
    uint32_t scale = s->flags & CL_TCPF_SYN ? 0 : u->conn.rcv_scale;
    if (s->flags & CL_TCPF_ACK) {
        uint32_t edge = s->ack + ((uint32_t)s->window << scale), unit = 1u << u->conn.rcv_scale;
        /* A scaled window may be told up to a unit too small (RFC 7323, section 2.4). */
        CHECK(!me->any || cl_seq_upto(me->edge, edge + unit), "the window shrank by %u", me->edge - edge);
        me->edge = me->any ? cl_seq_max(me->edge, edge) : edge;
        me->any = true;
    }
}

/* FNV-1a. */
static void note_said(const uint8_t *bytes, uint32_t len)
{
    for (uint32_t i = 0; i < len; i++)
        said = (said ^ bytes[i]) * 0x100000001b3ull;
    said = (said ^ now_ns) * 0x100000001b3ull;
}

static bool world_emit(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                       const struct cl_tcp_bytes *data)
{
    struct host *h = cl_container_of(turn, struct host, turn);
    struct user *u = cl_container_of(c, struct user, conn);
    uint8_t bytes[SEGMENT_MOST];
    if (h->no_buffers)
        return false;
    CHECK_EQ(s->len, data->len);
    unsigned len = cl_tcp_segment_write(s, cl_be16(u->key.own_port_be), cl_be16(u->key.peer_port_be), bytes);
    CHECK(len + s->len <= (unsigned)c->settings->mss + 20, "it does not fit");
    const struct cl_chunk *chunk = data->chunk;
    for (uint32_t left = data->len, at = data->offset; left; chunk = chunk->next, at = chunk ? chunk->from : 0) {
        uint32_t n = cl_min(left, (uint32_t)chunk->from + chunk->len - at);
        memcpy(bytes + len, chunk->bytes + at, n);
        len += n;
        left -= n;
    }
    show("sends", h->index, s);
    note_said(bytes, len);
    referee(u, s);
    if (!h->mute && !(intercept && intercept(h->index, s)))
        send_bytes(!h->index, bytes, len, s->ecn);
    return true;
}

struct kept {
    struct cl_chunk_owner owner; /* first */
    uint8_t *memory;
};

static void kept_done(struct cl_chunk_owner *owner, unsigned kthread)
{
    (void)kthread;
    free(((struct kept *)owner)->memory);
    n_kept--;
}

/* The sanitizer sees who reads it later than it may. */
static bool world_keep(struct cl_tcp_turn *turn, struct cl_chunk *chunk)
{
    (void)turn;
    if (!keepable || n_kept >= most_kept)
        return false;
    *(struct kept *)cl_chunk_owner(chunk) = (struct kept){{kept_done}, keepable};
    keepable = NULL;
    n_kept++;
    return true;
}

static struct cl_tcp_listener *listener_of(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c)
{
    struct host *h = cl_container_of(turn, struct host, turn);
    const struct user *u = cl_container_of(c, const struct user, conn);
    if (cl_be16(u->key.own_port_be) != h->listens || !cl_tcp_admit(&h->listener))
        return NULL;
    seen[h->index][u - h->users] = (struct seen){0};
    return &h->listener;
}

static const struct cl_flow_key *key_of(const struct cl_tcp_conn *c)
{
    return &cl_container_of(c, const struct user, conn)->key;
}

static void settle(struct user *u)
{
    const char *wrong = cl_tcp_invariant(&u->conn);
    CHECK(!wrong, "%s", wrong);
}

static void begin(struct user *u)
{
    u->host->turn.now_ns = now_ns;
    cl_tcp_begin(&u->conn, &u->host->turn);
}

static void finish(struct user *u)
{
    bool lives = cl_tcp_finish(&u->conn);
    settle(u);
    u->used = lives;
    if (!lives)
        CHECK(!u->conn.send.first && !u->conn.receive.first && !u->conn.aside, "memory of one that is over");
}

static struct user *new_user(struct host *h, uint32_t peer, uint16_t peer_port, uint16_t own_port,
                             const struct cl_tcp_settings *settings)
{
    for (unsigned i = 0; i < HOST_CONNS; i++) {
        struct user *u = &h->users[i];
        if (u->used)
            continue;
        *u = (struct user){.host = h, .used = true};
        u->key = (struct cl_flow_key){cl_be32(peer), cl_be32(h->ip), cl_be16(peer_port), cl_be16(own_port), 6};
        seen[h->index][i] = (struct seen){0};
        h->turn.now_ns = now_ns;
        cl_tcp_init(&u->conn, &h->turn, &u->key, settings);
        return u;
    }
    return NULL;
}

static void hold_none(struct cl_tcp_conn *c, void *arg)
{
    *(struct cl_tcp_conn **)arg = c;
}

/* A lease comes back, outside of any turn; its connection gets one if it lives. */
static inline void return_lease(struct host *h, struct cl_lease *lease)
{
    struct cl_tcp_conn *c = NULL;
    cl_tcp_lease_end(&h->stack, 0, &h->counts, lease, hold_none, &c);
    if (!c || c->turn)
        return;
    struct user *u = cl_container_of(c, struct user, conn);
    begin(u);
    finish(u);
}

static struct user *find_user(struct host *h, uint16_t peer_port, uint16_t own_port)
{
    for (unsigned i = 0; i < HOST_CONNS; i++)
        if (h->users[i].used && cl_be16(h->users[i].key.peer_port_be) == peer_port &&
            cl_be16(h->users[i].key.own_port_be) == own_port)
            return &h->users[i];
    return NULL;
}

static void host_init(unsigned index, uint32_t chunks)
{
    struct host *h = &hosts[index];
    memset(h, 0, sizeof *h);
    h->index = index;
    h->ip = 0x0a000001u + index;
    cl_tcp_settings_default(&h->stack.settings, 1500);
    h->stack.settings.no_prediction = no_prediction;
    h->stack.chunks = cl_chunks_new((uint64_t)chunks * CL_CHUNK_BYTES, 1);
    h->stack.secret = (struct cl_flow_secret){index + 1, 77};
    h->turn = (struct cl_tcp_turn){.stack = &h->stack,
                                   .counts = &h->counts,
                                   .emit = world_emit,
                                   .listener = listener_of,
                                   .key = key_of,
                                   .keep = world_keep};
}

static uint64_t held(const struct host *h)
{
    struct cl_chunk_stats send, receive;
    cl_chunks_stats(h->stack.chunks, CL_CHUNKS_TCP_SEND, &send);
    cl_chunks_stats(h->stack.chunks, CL_CHUNKS_TCP_RECEIVE, &receive);
    return send.held_bytes + receive.held_bytes;
}

static void listen_on(struct host *h, uint16_t port, const struct cl_tcp_events *user, void *arg)
{
    h->listens = port;
    h->listener = (struct cl_tcp_listener){.settings = &h->stack.settings, .user = user, .arg = arg, .backlog = 4};
}

static struct user *connect_from(struct host *h, uint16_t own_port, uint16_t port, const struct cl_tcp_events *user,
                                 void *arg)
{
    struct user *u = new_user(h, hosts[!h->index].ip, port, own_port, &h->stack.settings);
    CHECK(u != NULL);
    begin(u);
    cl_tcp_connect(&u->conn, user, arg);
    finish(u);
    return u;
}

/* The reset for one that belongs to no connection. */
static void refuse_stranger(struct host *h, const struct cl_tcp_segment *s, uint16_t from_port, uint16_t to_port)
{
    struct cl_tcp_segment reset;
    uint8_t bytes[64];
    if (!cl_tcp_segment_refuse(s, &reset))
        return;
    show("resets", h->index, &reset);
    send_bytes(!h->index, bytes, cl_tcp_segment_write(&reset, to_port, from_port, bytes), 0);
}

/* A segment arrives at a host. */
static void arrive_with(struct host *h, const uint8_t *bytes, uint32_t len, uint8_t ecn)
{
    struct cl_tcp_segment s;
    CHECK(cl_tcp_segment_read(bytes, len, &s));
    s.ecn = ecn;
    uint16_t from_port = (uint16_t)(bytes[0] << 8 | bytes[1]), to_port = (uint16_t)(bytes[2] << 8 | bytes[3]);
    show("takes", h->index, &s);
    if (h->mute)
        return;
    struct user *u = find_user(h, from_port, to_port);
    if (!u && to_port == h->listens && (s.flags & (CL_TCPF_SYN | CL_TCPF_ACK | CL_TCPF_RST)) == CL_TCPF_SYN) {
        if (!cl_tcp_admit(&h->listener))
            return;
        u = new_user(h, hosts[!h->index].ip, from_port, to_port, h->listener.settings);
        CHECK(u != NULL);
        cl_tcp_listen(&u->conn, &h->listener);
    }
    if (!u) {
        refuse_stranger(h, &s, from_port, to_port);
        return;
    }
    begin(u);
    cl_tcp_input(&u->conn, &s, bytes + s.header_len);
    finish(u);
}

static inline void arrive(struct host *h, const uint8_t *bytes, uint32_t len)
{
    arrive_with(h, bytes, len, 0);
}

/* The next thing that happens, no later than until_ns. False: nothing does; the time is until_ns then. */
static bool world_step(uint64_t until_ns)
{
    unsigned next = n_flying;
    uint64_t at_ns = until_ns;
    struct user *who = NULL;
    for (unsigned i = 0; i < n_flying; i++)
        if (flying[i].at_ns < at_ns ||
            (flying[i].at_ns == at_ns && next < n_flying && flying[i].order < flying[next].order)) {
            at_ns = flying[i].at_ns;
            next = i;
        }
    for (unsigned h = 0; h < 2; h++)
        for (unsigned i = 0; i < HOST_CONNS; i++) {
            struct user *u = &hosts[h].users[i];
            if (u->used && cl_tcp_due_ns(&u->conn) < at_ns) {
                at_ns = cl_tcp_due_ns(&u->conn);
                who = u;
            }
        }
    now_ns = cl_max(now_ns, at_ns);
    if (who) {
        begin(who);
        cl_tcp_timers(&who->conn);
        finish(who);
        return true;
    }
    if (next == n_flying)
        return false;
    struct flying f = flying[next];
    flying[next] = flying[--n_flying];
    keepable = f.bytes;
    arrive_with(&hosts[f.to], f.bytes, f.len, f.ecn);
    free(keepable);
    keepable = NULL;
    return true;
}

/* Until nothing happens any more, or the time has come. Returns whether nothing would happen after it. */
static inline void world_run(uint64_t for_ns)
{
    uint64_t until_ns = now_ns + for_ns;
    while (world_step(until_ns))
        ;
}

static inline bool world_is_quiet(void)
{
    if (n_flying)
        return false;
    for (unsigned h = 0; h < 2; h++)
        for (unsigned i = 0; i < HOST_CONNS; i++)
            if (hosts[h].users[i].used)
                return false;
    return true;
}

static void world_end(void)
{
    for (unsigned i = 0; i < n_flying; i++)
        free(flying[i].bytes);
    n_flying = 0;
    for (unsigned h = 0; h < 2; h++) {
        CHECK_EQ(held(&hosts[h]), 0);
        CHECK_EQ(n_kept, 0);
        CHECK_EQ(hosts[h].counts.leased, hosts[h].counts.unleased);
        CHECK_EQ(hosts[h].listener.pending, 0);
        cl_chunks_delete(hosts[h].stack.chunks);
    }
}

#endif
