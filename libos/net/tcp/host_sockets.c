/* The sockets of a host. See host.h. */
#include "host_own.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static struct cl_host_socket *get(const struct cl_tcp_host *h, int s)
{
    const struct cl_host_socket *found =
        s >= 0 && s < CL_TCP_HOST_SOCKETS && h->sockets[s].open ? &h->sockets[s] : NULL;
    return (struct cl_host_socket *)found;
}

static int number_of(const struct cl_host_socket *s)
{
    return (int)(s - s->host->sockets);
}

int cl_tcp_host_listen(struct cl_tcp_host *h, uint16_t port, uint32_t backlog)
{
    struct cl_flow_key key = {.own_be = cl_be32(h->ipv4), .own_port_be = cl_be16(port), .protocol = CL_IPPROTO_TCP};
    if (cl_host_find_listener(h, key.own_port_be))
        return -EADDRINUSE;
    struct cl_host_socket *s = cl_host_new_socket(h, &key, true);
    if (!s)
        return -EMFILE;
    s->lives = false;
    free(s->listener);
    s->listener = calloc(1, sizeof *s->listener);
    if (!s->listener) {
        s->open = false;
        return -ENOMEM;
    }
    *s->listener = (struct cl_tcp_listener){
        .settings = &h->stack.settings, .user = &cl_host_events, .arg = h, .backlog = backlog, .accepts = true};
    return number_of(s);
}

int cl_tcp_host_accept(struct cl_tcp_host *h, int number, uint32_t *peer, uint16_t *peer_port)
{
    struct cl_host_socket *l = get(h, number), *first = NULL;
    if (!l || !l->listener)
        return l ? -EINVAL : -EBADF;
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        struct cl_host_socket *s = &h->sockets[i];
        if (s->waits && s->key.own_port_be == l->key.own_port_be && (!first || s->order < first->order))
            first = s;
    }
    if (!first)
        return -EAGAIN;
    first->waits = false;
    first->open = true;
    cl_tcp_accepted(&first->conn);
    *peer = cl_be32(first->key.peer_be);
    *peer_port = cl_be16(first->key.peer_port_be);
    return number_of(first);
}

int cl_tcp_host_connect(struct cl_tcp_host *h, uint16_t own_port, uint32_t ipv4, uint16_t port)
{
    struct cl_flow_key key = {cl_be32(ipv4), cl_be32(h->ipv4), cl_be16(port), cl_be16(own_port), CL_IPPROTO_TCP};
    if (cl_host_find(h, &key))
        return -EADDRINUSE;
    struct cl_host_socket *s = cl_host_new_socket(h, &key, true);
    if (!s)
        return -EMFILE;
    s->connecting = true;
    cl_host_begin(s);
    cl_tcp_connect(&s->conn, &cl_host_events, NULL);
    cl_host_finish(s);
    return number_of(s);
}

int cl_tcp_host_connected(const struct cl_tcp_host *h, int number)
{
    const struct cl_host_socket *s = get(h, number);
    if (!s)
        return -EBADF;
    return s->connecting ? -EINPROGRESS : s->opened ? 0 : -s->error;
}

/* The error of a connection, once. */
static int take_error(struct cl_host_socket *s)
{
    int error = s->error;
    s->error = 0;
    return -error;
}

int cl_tcp_host_error(struct cl_tcp_host *h, int number)
{
    struct cl_host_socket *s = get(h, number);
    return s ? -take_error(s) : -EBADF;
}

/* What a read without a byte means. */
static int64_t nothing_read(struct cl_host_socket *s, int64_t room)
{
    if (room == 0 || s->eof)
        return 0;
    if (s->error)
        return take_error(s);
    if (!s->opened && !s->connecting)
        return -ENOTCONN;
    return !s->lives || (s->conn.flags & CL_TCP_FIN_CAME) ? 0 : -EAGAIN;
}

int64_t cl_tcp_host_read(struct cl_tcp_host *h, int number, void *data, int64_t room)
{
    struct cl_host_socket *s = get(h, number);
    int64_t got = 0;
    if (!s)
        return -EBADF;
    if (s->lives) {
        cl_host_begin(s);
        got = cl_tcp_read(&s->conn, data, room);
        cl_host_finish(s);
    }
    return got ? got : nothing_read(s, room);
}

int64_t cl_tcp_host_peek(struct cl_tcp_host *h, int number, void *data, int64_t room)
{
    struct cl_host_socket *s = get(h, number);
    int64_t got = 0;
    if (!s)
        return -EBADF;
    for (const struct cl_chunk *chunk = s->lives ? s->conn.receive.first : NULL; chunk && got < room;
         chunk = chunk->next) {
        uint32_t n = (uint32_t)cl_min(room - got, (int64_t)chunk->len);
        memcpy((uint8_t *)data + got, chunk->bytes + chunk->from, n);
        got += n;
    }
    return got ? got : nothing_read(s, room);
}

int64_t cl_tcp_host_write(struct cl_tcp_host *h, int number, const void *data, int64_t len)
{
    return cl_tcp_host_send(h, number, data, len, false);
}

int64_t cl_tcp_host_send(struct cl_tcp_host *h, int number, const void *data, int64_t len, bool more)
{
    struct cl_host_socket *s = get(h, number);
    if (!s)
        return -EBADF;
    if (s->error)
        return take_error(s);
    if (!s->opened)
        return s->connecting ? -EAGAIN : -ENOTCONN;
    if (!s->lives)
        return -EPIPE;
    cl_host_begin(s);
    int64_t took = cl_tcp_write(&s->conn, data, len);
    if (more && took > 0)
        cl_tcp_more(&s->conn);
    cl_host_finish(s);
    return took || len == 0 ? took : -EAGAIN;
}

int cl_tcp_host_shutdown(struct cl_tcp_host *h, int number)
{
    struct cl_host_socket *s = get(h, number);
    if (!s)
        return -EBADF;
    if (!s->lives || !s->opened)
        return -ENOTCONN;
    cl_host_begin(s);
    cl_tcp_shutdown(&s->conn);
    cl_host_finish(s);
    return 0;
}

/* A listener ends: so do those that nobody accepted. */
static void close_listener(struct cl_tcp_host *h, struct cl_host_socket *l)
{
    for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++) {
        struct cl_host_socket *s = &h->sockets[i];
        if (!s->lives || s->conn.listener != l->listener)
            continue;
        s->waits = false;
        cl_host_begin(s);
        cl_tcp_abort(&s->conn);
        cl_host_finish(s);
    }
}

int cl_tcp_host_close(struct cl_tcp_host *h, int number, bool abort)
{
    struct cl_host_socket *s = get(h, number);
    if (!s)
        return -EBADF;
    s->open = false;
    if (s->listener) {
        close_listener(h, s);
        free(s->listener);
        s->listener = NULL;
    } else if (s->lives) {
        cl_host_begin(s);
        if (abort)
            cl_tcp_abort(&s->conn);
        else
            cl_tcp_close(&s->conn);
        cl_host_finish(s);
    }
    return 0;
}

/* What all connections of a host share is its own from now on. */
static void own_setting(struct cl_host_socket *s, int option, uint32_t value)
{
    if (s->conn.settings != &s->settings)
        s->settings = *s->conn.settings;
    s->conn.settings = &s->settings;
    (void)cl_host_set(&s->settings, option, value);
    if (option == CL_TCP_SET_RULE)
        cl_tcp_cc_choose(&s->conn.cc, s->settings.cc);
    cl_tcp_keep_alive(&s->conn, s->conn.flags & CL_TCP_KEEP_ALIVE);
}

int cl_tcp_host_set_socket(struct cl_tcp_host *h, int number, int option, uint32_t value)
{
    struct cl_host_socket *s = get(h, number);
    if (!s)
        return -EBADF;
    struct cl_tcp_conn *c = &s->conn;
    cl_host_begin(s);
    switch (option) {
    case CL_TCP_SET_SEND_LIMIT:
    case CL_TCP_SET_RECEIVE_LIMIT:
        (option == CL_TCP_SET_SEND_LIMIT ? &c->send : &c->receive)->limit = value;
        break;
    case CL_TCP_SET_NO_DELAY:
        cl_tcp_no_delay(c, value);
        break;
    case CL_TCP_SET_KEEP_ALIVE:
        cl_tcp_keep_alive(c, value);
        break;
    case CL_TCP_SET_CORK:
        cl_tcp_cork(c, value);
        break;
    case CL_TCP_SET_USER_TIMEOUT:
        c->user_timeout_ms = value;
        break;
    case CL_TCP_SET_QUICK_ACK:
        c->quick = value ? CL_TCP_QUICK : 0;
        break;
    default:
        own_setting(s, option, value);
    }
    if (s->lives)
        cl_host_finish(s);
    return 0;
}

int cl_tcp_host_ready(const struct cl_tcp_host *h, int number)
{
    const struct cl_host_socket *s = get(h, number);
    int what = 0;
    if (!s)
        return -EBADF;
    if (s->listener) {
        for (int i = 0; i < CL_TCP_HOST_SOCKETS; i++)
            if (h->sockets[i].waits && h->sockets[i].key.own_port_be == s->key.own_port_be)
                what = CL_TCP_READABLE;
        return what;
    }
    const struct cl_tcp_conn *c = &s->conn;
    bool over = !s->lives || c->state == CL_TCP_TIME_WAIT;
    if (s->error)
        what |= CL_TCP_FAILED;
    if (over)
        what |= CL_TCP_OVER | CL_TCP_WRITABLE;
    if (over || (c->flags & CL_TCP_FIN_CAME))
        what |= CL_TCP_READABLE | CL_TCP_PEER_SHUT;
    if (c->receive.bytes)
        what |= CL_TCP_READABLE;
    if (s->opened && c->send.bytes <= c->send.limit - c->send.limit / 3)
        what |= CL_TCP_WRITABLE;
    return what;
}

int cl_tcp_host_info(const struct cl_tcp_host *h, int number, struct cl_tcp_info *out)
{
    const struct cl_host_socket *s = get(h, number);
    if (!s || s->listener)
        return s ? -ENOTCONN : -EBADF;
    cl_tcp_get_info(&s->conn, out);
    return 0;
}

void cl_host_look(struct cl_host_socket *s)
{
    const struct cl_tcp_conn *c = &s->conn;
    uint64_t now_ns = s->host->turn.now_ns, passed_ns = now_ns - s->looked_ns;
    s->traffic.busy_ns += s->busy ? passed_ns : 0;
    s->traffic.limited_ns += s->limited ? passed_ns : 0;
    s->looked_ns = now_ns;
    s->busy = s->lives && c->state >= CL_TCP_ESTABLISHED && c->send.bytes;
    uint32_t under_way = c->nxt - c->una, unsent = s->busy ? cl_tcp_data_end(c) - c->nxt : 0;
    if (c->flags & CL_TCP_FIN_OUT)
        unsent = 0;
    s->limited = unsent && under_way + cl_min(unsent, (uint32_t)c->cc.mss) > c->wnd;
}

static uint64_t sent_again(struct cl_tcp_conn *c)
{
    struct cl_tcp_walk w;
    uint64_t n = 0;
    for (const struct cl_tcp_record *r = cl_tcp_walk_first(c, &w); r; r = cl_tcp_walk_next(&w))
        n += (r->flags & (CL_TCP_RECORD_AGAIN | CL_TCP_RECORD_LOST | CL_TCP_RECORD_SACKED)) == CL_TCP_RECORD_AGAIN;
    return n;
}

int cl_tcp_host_traffic(const struct cl_tcp_host *h, int number, struct cl_tcp_host_traffic *out)
{
    struct cl_host_socket *s = get(h, number);
    if (!s || s->listener)
        return s ? -ENOTCONN : -EBADF;
    const struct cl_tcp_conn *c = &s->conn;
    bool open = c->state >= CL_TCP_ESTABLISHED;
    cl_host_look(s);
    *out = s->traffic;
    out->mss_offered = c->settings->mss;
    out->again = sent_again(&s->conn);
    uint64_t sent = s->traffic.bytes_sent - s->traffic.bytes_resent; /* without a FIN */
    out->bytes_acked = open ? cl_min((uint64_t)(c->una - s->iss - 1), sent) : 0;
    out->bytes_received = open ? c->rcv_nxt - s->irs - 1 - !!(c->flags & CL_TCP_FIN_CAME) : 0;
    return 0;
}
