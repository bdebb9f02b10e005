/* See host.h. */
#include "../icmp.h"
#include "cookie.h"
#include "host_own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#define CHUNK_BYTES (64u << 20)
#define HEADERS 20 /* of IPv4 */

/* Packets. */

static void send_packet(struct cl_tcp_host *h, const struct cl_flow_key *key, const struct cl_tcp_segment *s,
                        const struct cl_tcp_bytes *data)
{
    struct sent *p = malloc(sizeof *p + HEADERS + 60 + s->len);
    if (!p)
        return; /* as if lost */
    uint8_t *tcp = p->bytes + HEADERS;
    unsigned len = cl_tcp_segment_write(s, cl_be16(key->own_port_be), cl_be16(key->peer_port_be), tcp);
    const struct cl_chunk *chunk = data->chunk;
    for (uint32_t left = data->len, at = data->offset; left; chunk = chunk->next, at = chunk ? chunk->from : 0) {
        uint32_t n = cl_min(left, (uint32_t)chunk->from + chunk->len - at);
        memcpy(tcp + len, chunk->bytes + at, n);
        len += n;
        left -= n;
    }
    struct cl_ipv4 ip = {.version_ihl = 0x45,
                         .tos = s->ecn,
                         .total_len_be = cl_be16(HEADERS + len),
                         .frag_be = cl_be16(CL_IPV4_DF),
                         .ttl = 64,
                         .proto = CL_IPPROTO_TCP,
                         .src_be = key->own_be,
                         .dst_be = key->peer_be};
    ip.check = cl_csum_finish(cl_csum_add(0, &ip, sizeof ip));
    memcpy(p->bytes, &ip, sizeof ip);
    uint64_t sum = cl_csum_pseudo(key->own_be, key->peer_be, CL_IPPROTO_TCP, (uint16_t)len);
    cl_put16(tcp + 16, cl_csum_finish(cl_csum_add(sum, tcp, len)));
    p->len = HEADERS + len;
    p->at_ns = h->turn.now_ns;
    p->next = NULL;
    *h->last = p;
    h->last = &p->next;
}

static bool emit(struct cl_tcp_turn *turn, struct cl_tcp_conn *c, const struct cl_tcp_segment *s,
                 const struct cl_tcp_bytes *data)
{
    struct cl_host_socket *of = cl_container_of(c, struct cl_host_socket, conn);
    struct cl_tcp_host_traffic *t = &of->traffic;
    if (s->flags & CL_TCPF_SYN)
        of->iss = s->seq;
    t->segs_out++;
    t->data_segs_out += s->len != 0;
    t->bytes_sent += s->len;
    t->bytes_resent += cl_seq_before(s->seq, c->nxt) ? s->len : 0;
    t->data_sent_ns = s->len ? turn->now_ns : t->data_sent_ns;
    send_packet(cl_container_of(turn, struct cl_tcp_host, turn), &of->key, s, data);
    return true;
}

/* Of a segment that is of no connection. */
static void refuse(struct cl_tcp_host *h, const struct cl_flow_key *key, const struct cl_tcp_segment *s)
{
    static const struct cl_tcp_bytes none;
    struct cl_tcp_segment reset;
    if (cl_tcp_segment_refuse(s, &reset))
        send_packet(h, key, &reset, &none);
}

struct cl_tcp_listener *cl_host_find_listener(struct cl_tcp_host *h, uint16_t port_be)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
        if (h->sockets[i].listener && h->sockets[i].open && h->sockets[i].key.own_port_be == port_be)
            return h->sockets[i].listener;
    return NULL;
}

/* Of the port of one in TIME_WAIT, which its user has let go of. */
static struct cl_tcp_listener *listener_of(struct cl_tcp_turn *turn, const struct cl_tcp_conn *c)
{
    struct cl_host_socket *s = cl_container_of(c, struct cl_host_socket, conn);
    struct cl_tcp_listener *l =
        cl_host_find_listener(cl_container_of(turn, struct cl_tcp_host, turn), s->key.own_port_be);
    if (s->open || !l || !cl_tcp_admit(l))
        return NULL;
    s->opened = s->connecting = false;
    s->error = 0;
    return l;
}

static const struct cl_flow_key *key_of(const struct cl_tcp_conn *c)
{
    return &cl_container_of(c, const struct cl_host_socket, conn)->key;
}

uint32_t cl_tcp_host_next(struct cl_tcp_host *h, uint8_t *packet, uint32_t room, uint64_t *at_ns)
{
    struct sent *p = h->first;
    if (!p)
        return 0;
    uint32_t len = cl_min(p->len, room);
    memcpy(packet, p->bytes, len);
    *at_ns = p->at_ns;
    h->first = p->next;
    if (!h->first)
        h->last = &h->first;
    free(p);
    return len;
}

/* What the machine tells. */

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    struct cl_host_socket *s = cl_container_of(c, struct cl_host_socket, conn);
    (void)arg;
    s->opened = true;
    s->traffic.data_came_ns = s->host->turn.now_ns; /* as Linux, where nothing came it is since then */
    s->connecting = false;
    if (c->flags & CL_TCP_PASSIVE) {
        s->waits = true;
        s->order = s->host->order++;
    }
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    struct cl_host_socket *s = cl_container_of(c, struct cl_host_socket, conn);
    (void)arg;
    s->eof = true;
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct cl_host_socket *s = cl_container_of(c, struct cl_host_socket, conn);
    (void)arg;
    s->connecting = false;
    s->error = error;
}

const struct cl_tcp_events cl_host_events = {.opened = on_opened, .eof = on_eof, .ended = on_ended};

struct cl_host_socket *cl_host_new_socket(struct cl_tcp_host *h, const struct cl_flow_key *key, bool open)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        struct cl_host_socket *s = &h->sockets[i];
        if (s->open || s->lives || s->waits)
            continue;
        *s = (struct cl_host_socket){.host = h, .key = *key, .open = open, .lives = true};
        cl_tcp_init(&s->conn, &h->turn, key, &h->stack.settings);
        return s;
    }
    return NULL;
}

struct cl_host_socket *cl_host_find(struct cl_tcp_host *h, const struct cl_flow_key *key)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
        if (h->sockets[i].lives && cl_flow_key_equal(&h->sockets[i].key, key))
            return &h->sockets[i];
    return NULL;
}

/* For a SYN. NULL: there is no place for one. */
static struct cl_host_socket *socket_for_syn(struct cl_tcp_host *h, const struct cl_flow_key *key,
                                             struct cl_tcp_listener *l, const struct cl_tcp_segment *syn)
{
    static const struct cl_tcp_bytes none;
    struct cl_tcp_segment answer;
    if (!cl_tcp_admit(l)) {
        if (!cl_tcp_takes(l)) {
            cl_count(&h->counts.dropped_backlog, 1);
            return NULL;
        }
        cl_tcp_cookie_answer(&h->turn, l, key, syn, &answer);
        send_packet(h, key, &answer, &none);
        return NULL;
    }
    struct cl_host_socket *s = cl_host_new_socket(h, key, false);
    if (s)
        cl_tcp_listen(&s->conn, l);
    else
        l->pending--;
    return s;
}

/* For the answer to a cookie. NULL: there is no place for one. */
static struct cl_host_socket *socket_for_cookie(struct cl_tcp_host *h, const struct cl_flow_key *key,
                                                struct cl_tcp_listener *l, const struct cl_tcp_segment *seg)
{
    if (!cl_tcp_cookie_admit(l)) {
        cl_count(&h->counts.dropped_backlog, 1);
        return NULL;
    }
    struct cl_host_socket *s = cl_host_new_socket(h, key, false);
    if (s)
        cl_tcp_cookie_take(&s->conn, l, seg);
    else
        l->pending--;
    return s;
}

/* A segment of no connection. Returns one that was made for it. */
static struct cl_host_socket *stranger(struct cl_tcp_host *h, const struct cl_flow_key *key,
                                       const struct cl_tcp_segment *seg)
{
    struct cl_tcp_listener *l = cl_host_find_listener(h, key->own_port_be);
    if (l && (seg->flags & (CL_TCPF_SYN | CL_TCPF_ACK | CL_TCPF_RST)) == CL_TCPF_SYN)
        return socket_for_syn(h, key, l, seg);
    if (l && !(seg->flags & CL_TCPF_ACK)) /* it is dropped (RFC 9293, section 3.10.7.2) */
        return NULL;
    if (l && cl_tcp_cookie_right(&h->turn, key, seg))
        return socket_for_cookie(h, key, l, seg);
    refuse(h, key, seg);
    return NULL;
}

/* A segment came for it. */
static void note_came(struct cl_host_socket *s, const struct cl_tcp_segment *seg)
{
    struct cl_tcp_host_traffic *t = &s->traffic;
    s->irs = seg->flags & CL_TCPF_SYN ? seg->seq : s->irs;
    t->segs_in++;
    if (seg->flags & CL_TCPF_ACK)
        t->ack_came_ns = s->host->turn.now_ns;
    if (seg->len == 0)
        return;
    t->data_segs_in++;
    t->data_came_ns = s->host->turn.now_ns;
    t->out_of_order += s->conn.state >= CL_TCP_ESTABLISHED && cl_seq_before(s->conn.rcv_nxt, seg->seq);
}

static void take_segment(struct cl_tcp_host *h, const struct cl_ipv4 *ip, const uint8_t *tcp, unsigned len)
{
    struct cl_tcp_segment seg;
    uint64_t sum = cl_csum_pseudo(ip->src_be, ip->dst_be, CL_IPPROTO_TCP, (uint16_t)len);
    if (!cl_tcp_segment_read(tcp, len, &seg) || cl_csum_finish(cl_csum_add(sum, tcp, len)))
        return;
    struct cl_flow_key key = {ip->src_be, ip->dst_be, cl_get16(tcp), cl_get16(tcp + 2), CL_IPPROTO_TCP};
    struct cl_host_socket *s = cl_host_find(h, &key);
    if (!s)
        s = stranger(h, &key, &seg);
    if (!s)
        return;
    seg.ecn = ip->tos & 3;
    note_came(s, &seg);
    cl_host_begin(s);
    cl_tcp_input(&s->conn, &seg, tcp + seg.header_len);
    cl_host_finish(s);
}

static void take_message(struct cl_tcp_host *h, const uint8_t *icmp, unsigned len)
{
    struct cl_net_self self = {.ip_be = cl_be32(h->ipv4)};
    struct cl_icmp_about about;
    bool is_error;
    if (cl_icmp_check(&self, icmp, len, false, false, &is_error) != CL_DROP_NONE || !is_error)
        return;
    cl_icmp_read(icmp, &about);
    struct cl_flow_key key = {about.dst_be, about.src_be, about.dst_port_be, about.src_port_be, about.protocol};
    struct cl_host_socket *s = cl_host_find(h, &key);
    if (!s)
        return;
    cl_host_begin(s);
    cl_tcp_complain(&s->conn, &about);
    cl_host_finish(s);
}

void cl_tcp_host_take(struct cl_tcp_host *h, const uint8_t *packet, uint32_t len)
{
    struct cl_ipv4 ip;
    if (len < HEADERS)
        return;
    memcpy(&ip, packet, sizeof ip);
    unsigned header = 4u * (ip.version_ihl & 15), total = cl_be16(ip.total_len_be);
    if (ip.version_ihl >> 4 != 4 || header < HEADERS || total > len || header > total || cl_be32(ip.dst_be) != h->ipv4)
        return;
    if (ip.proto == CL_IPPROTO_TCP)
        take_segment(h, &ip, packet + header, total - header);
    else if (ip.proto == CL_IPPROTO_ICMP)
        take_message(h, packet + header, total - header);
}

/* Time. */

static struct cl_host_socket *first_due(const struct cl_tcp_host *h, uint64_t *due_ns)
{
    struct cl_host_socket *first = NULL;
    *due_ns = CL_TCP_NEVER;
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        const struct cl_host_socket *s = &h->sockets[i];
        if (s->lives && cl_tcp_due_ns(&s->conn) < *due_ns) {
            *due_ns = cl_tcp_due_ns(&s->conn);
            first = (struct cl_host_socket *)s;
        }
    }
    return first;
}

uint64_t cl_tcp_host_due_ns(const struct cl_tcp_host *h)
{
    uint64_t due_ns;
    (void)first_due(h, &due_ns);
    return due_ns;
}

void cl_tcp_host_run(struct cl_tcp_host *h, uint64_t now_ns)
{
    struct cl_host_socket *s;
    uint64_t due_ns;
    while ((s = first_due(h, &due_ns)) && due_ns <= now_ns) {
        h->turn.now_ns = cl_max(h->turn.now_ns, due_ns);
        cl_host_begin(s);
        cl_tcp_timers(&s->conn);
        cl_host_finish(s);
    }
    h->turn.now_ns = cl_max(h->turn.now_ns, now_ns);
}

/* A host. */

int cl_tcp_host_new(uint32_t ipv4, uint32_t mtu, uint64_t now_ns, struct cl_tcp_host **out)
{
    struct cl_tcp_host *h = calloc(1, sizeof *h);
    if (!h)
        return -ENOMEM;
    h->ipv4 = ipv4;
    h->last = &h->first;
    h->stack.chunks = cl_chunks_new(CHUNK_BYTES, 1);
    h->turn = (struct cl_tcp_turn){.stack = &h->stack,
                                   .counts = &h->counts,
                                   .emit = emit,
                                   .listener = listener_of,
                                   .key = key_of,
                                   .now_ns = now_ns};
    cl_tcp_settings_default(&h->stack.settings, mtu);
    *out = h;
    if (h->stack.chunks)
        return 0;
    free(h);
    return -ENOMEM;
}

void cl_tcp_host_delete(struct cl_tcp_host *h)
{
    uint8_t none;
    uint64_t at_ns;
    while (cl_tcp_host_next(h, &none, 1, &at_ns))
        ;
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
        free(h->sockets[i].listener);
    cl_chunks_delete(h->stack.chunks);
    free(h);
}

int cl_host_set(struct cl_tcp_settings *s, int option, uint32_t value)
{
    static const struct cl_tcp_cc_ops *const rules[] = {&cl_tcp_cubic, &cl_tcp_newreno, &cl_tcp_dctcp};
    uint32_t *const words[] = {
        [CL_TCP_SET_SEND_LIMIT] = &s->send_limit,          [CL_TCP_SET_RECEIVE_LIMIT] = &s->receive_limit,
        [CL_TCP_SET_USER_TIMEOUT] = &s->user_timeout_ms,   [CL_TCP_SET_KEEP_IDLE] = &s->keep_idle_ms,
        [CL_TCP_SET_KEEP_INTERVAL] = &s->keep_interval_ms, [CL_TCP_SET_KEEP_PROBES] = &s->keep_probes,
        [CL_TCP_SET_FIN_WAIT] = &s->fin_wait_ms,           [CL_TCP_SET_RTO_LEAST] = &s->rto_least_ms,
        [CL_TCP_SET_DELAYED_ACK] = &s->delayed_ack_ms};
    if (option == CL_TCP_SET_TAIL_PROBES) {
        s->no_tail_probes = value == 0;
    } else if (option == CL_TCP_SET_NO_DELAY || option == CL_TCP_SET_KEEP_ALIVE) {
        uint32_t flag = option == CL_TCP_SET_NO_DELAY ? CL_TCP_NO_DELAY : CL_TCP_KEEP_ALIVE;
        s->flags = value ? s->flags | flag : s->flags & ~flag;
    } else if (option == CL_TCP_SET_WSCALE) {
        s->wscale = (uint8_t)cl_min(value, (uint32_t)CL_TCP_MAX_WSCALE);
    } else if (option == CL_TCP_SET_ECN && value <= CL_TCP_ECN_TAKE) {
        s->ecn = (uint8_t)value;
    } else if (option == CL_TCP_SET_SYN_RETRIES) {
        s->syn_retries = (uint8_t)cl_min(value, 255u);
    } else if (option == CL_TCP_SET_SYN_ACK_RETRIES) {
        s->syn_ack_retries = (uint8_t)cl_min(value, 255u);
    } else if (option == CL_TCP_SET_MSS && value) {
        s->mss = (uint16_t)cl_min(value, (uint32_t)s->mss);
    } else if (option == CL_TCP_SET_KEEPS_WINDOW) {
        s->keeps_window = value;
    } else if (option == CL_TCP_SET_RULE && value < sizeof rules / sizeof *rules) {
        s->cc = rules[value];
    } else if (option == CL_TCP_SET_BLACK_HOLES) {
        s->black_holes = value;
    } else if (option == CL_TCP_SET_OPTIONS) {
        s->options = (uint8_t)value;
    } else if (option >= 0 && (size_t)option < sizeof words / sizeof *words && words[option]) {
        *words[option] = value;
    } else {
        return -EINVAL;
    }
    return 0;
}

int cl_tcp_host_set(struct cl_tcp_host *h, int option, uint32_t value)
{
    return cl_host_set(&h->stack.settings, option, value);
}

uint64_t cl_tcp_host_held(const struct cl_tcp_host *h)
{
    struct cl_chunk_stats send, receive;
    cl_chunks_stats(h->stack.chunks, CL_CHUNKS_TCP_SEND, &send);
    cl_chunks_stats(h->stack.chunks, CL_CHUNKS_TCP_RECEIVE, &receive);
    return send.held_bytes + receive.held_bytes;
}

void cl_tcp_host_counts(const struct cl_tcp_host *h, struct cl_tcp_counts *out)
{
    *out = h->counts;
}
