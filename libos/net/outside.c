/* See outside.h. */
#include "outside.h"
#include "netif.h"

struct call {
    enum { SEND, RECEIVE, CLOSE, POLL } what;
    struct cl_udp_socket *s;
    const void *data;
    void *room;
    int64_t len, timeout_ns, rc;
    const struct cl_udp_addr *to;
    struct cl_udp_addr *from;
    struct cl_poll *set;
};

static void run(void *arg)
{
    struct call *c = arg;
    switch (c->what) {
    case SEND:
        c->rc = c->to ? cl_udp_sendto(c->s, c->data, c->len, c->to) : cl_udp_send(c->s, c->data, c->len);
        break;
    case RECEIVE:
        c->rc = cl_udp_recvfrom(c->s, c->room, c->len, c->from, c->timeout_ns);
        break;
    case CLOSE:
        c->rc = cl_udp_close(c->s);
        break;
    case POLL:
        c->rc = cl_poll_wait(c->set, c->room, c->len, c->timeout_ns);
        break;
    }
}

/* On a kthread it is run where it is: a Python handler may send, and is refused what would block. */
static int64_t outside(const struct cl_netif *nif, struct call *c)
{
    if (cl_sched_self() == nif->sched) {
        run(c);
        return c->rc;
    }
    int rc = cl_sched_run(nif->sched, run, c);
    return rc ? rc : c->rc;
}

int64_t cl_outside_send(struct cl_udp_socket *s, const void *data, int64_t len, const struct cl_udp_addr *to)
{
    struct call c = {.what = SEND, .s = s, .data = data, .len = len, .to = to};
    return outside(s->nif, &c);
}

int64_t cl_outside_receive(struct cl_udp_socket *s, void *data, int64_t room, struct cl_udp_addr *from,
                           int64_t timeout_ns)
{
    struct call c = {.what = RECEIVE, .s = s, .room = data, .len = room, .from = from, .timeout_ns = timeout_ns};
    return outside(s->nif, &c);
}

int64_t cl_outside_close(struct cl_udp_socket *s)
{
    struct call c = {.what = CLOSE, .s = s};
    return cl_netif_running(s->nif) ? outside(s->nif, &c) : cl_udp_close(s);
}

int64_t cl_outside_poll(struct cl_poll *set, struct cl_poll_event *events, int64_t n, int64_t timeout_ns)
{
    struct call c = {.what = POLL, .set = set, .room = events, .len = n, .timeout_ns = timeout_ns};
    return outside(cl_poll_netif(set), &c);
}
