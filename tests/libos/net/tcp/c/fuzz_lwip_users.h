/* The users of fuzz_lwip.c: they write, read late, half-close, close and reset at any time. */
#ifndef TESTS_LIBOS_TCP_FUZZ_LWIP_USERS_H
#define TESTS_LIBOS_TCP_FUZZ_LWIP_USERS_H

#include "tests/libos/net/tcp/c/fuzz_lwip_wire.h"

/* The user of lwIP. */

static err_t lwip_recv(void *arg, struct tcp_pcb *p, struct pbuf *data, err_t err)
{
    (void)arg, (void)err;
    CHECK(p == pcb && !theirs.eof);
    if (!data) {
        theirs.eof = true;
        return ERR_OK;
    }
    /* lwIP keeps it, and asks again; but not in TIME_WAIT, to which our FIN may bring it with the last bytes. */
    if (chance() < 50 && theirs.read + data->tot_len < ours.wants)
        return ERR_MEM;
    for (struct pbuf *q = data; q; q = q->next)
        for (u16_t i = 0; i < q->len; i++, theirs.read++)
            CHECK(((uint8_t *)q->payload)[i] == byte_of(false, theirs.read), "byte %llu of ours",
                  (unsigned long long)theirs.read);
    theirs.unread += data->tot_len;
    pbuf_free(data);
    return ERR_OK;
}

static void lwip_err(void *arg, err_t err)
{
    (void)arg;
    CHECK(!clean || (err == ERR_CLSD && theirs.shut && theirs.eof), "lwIP says %d", err);
    pcb = NULL;
    theirs.over = true;
}

static err_t lwip_opened(void *arg, struct tcp_pcb *p, err_t err)
{
    (void)arg, (void)p;
    CHECK_EQ(err, ERR_OK);
    return ERR_OK;
}

static void lwip_adopt(struct tcp_pcb *p)
{
    pcb = p;
    tcp_arg(p, &theirs);
    tcp_recv(p, lwip_recv);
    tcp_err(p, lwip_err);
    if (below(2))
        tcp_nagle_disable(p);
}

static err_t lwip_accept(void *arg, struct tcp_pcb *p, err_t err)
{
    (void)arg;
    if (err != ERR_OK || !p)
        return ERR_VAL;
    if (pcb) { /* made-up segments may open more */
        tcp_abort(p);
        return ERR_ABRT;
    }
    lwip_adopt(p);
    return ERR_OK;
}

static void lwip_forget(void)
{
    tcp_arg(pcb, NULL);
    tcp_recv(pcb, NULL);
    tcp_err(pcb, NULL);
}

static void lwip_close(bool abort)
{
    struct tcp_pcb *p = pcb;
    lwip_forget();
    if (!abort && tcp_close(p) != ERR_OK) { /* no memory for a FIN: again later */
        lwip_adopt(p);
        return;
    }
    pcb = NULL;
    theirs.over = true;
    if (abort)
        tcp_abort(p);
}

static bool lwip_connected(void)
{
    return pcb && (pcb->state == ESTABLISHED || pcb->state == CLOSE_WAIT);
}

/* It may send beyond a window that an old acknowledgement moved. If that part is refused it says nothing any more,
 * although some of what it has sent is not acknowledged. */
static bool lwip_stands_still(void)
{
    return pcb && pcb->lastack != pcb->snd_nxt && now_ns - lwip_said_ns > 1000 * SECOND;
}

static void lwip_write(void)
{
    uint8_t data[4096];
    uint64_t n = 1 + below(sizeof data), room = tcp_sndbuf(pcb);
    n = cl_min(cl_min(n, theirs.wants - theirs.wrote), room);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(true, theirs.wrote + i);
    if (n && tcp_write(pcb, data, (u16_t)n, TCP_WRITE_FLAG_COPY | (below(2) ? TCP_WRITE_FLAG_MORE : 0)) == ERR_OK)
        theirs.wrote += n;
    (void)tcp_output(pcb);
}

static void lwip_acts(void)
{
    if (!pcb)
        return;
    if (theirs.unread && !below(theirs.slow)) {
        uint64_t most = theirs.slow > 2 ? 3000 : 30000;
        u16_t n = (u16_t)(1 + below(cl_min(theirs.unread, most)));
        theirs.unread -= n;
        tcp_recved(pcb, n);
    }
    if (!clean && chance() < 3) {
        lwip_close(below(2));
        return;
    }
    if (lwip_connected() && !theirs.shut && theirs.wrote < theirs.wants)
        lwip_write();
    /* Not while something is unsent: of a segment with a FIN that lwIP cuts both halves may have it. */
    if (lwip_connected() && !theirs.shut && theirs.wrote == theirs.wants && !pcb->unsent)
        theirs.shut = tcp_shutdown(pcb, 0, 1) == ERR_OK;
    if (pcb && theirs.shut && theirs.eof && !theirs.unread)
        lwip_close(false);
}

/* Our user. */

static void we_read(void)
{
    uint8_t data[8192];
    int64_t got = cl_tcp_host_read(host, sock, data, 1 + (int64_t)below(sizeof data));
    if (got > 0)
        CHECK(!ours.eof);
    for (int64_t i = 0; i < got; i++, ours.read++)
        CHECK(data[i] == byte_of(true, ours.read), "byte %llu of lwIP's", (unsigned long long)ours.read);
    if (got == 0)
        ours.eof = true;
    if (got < 0 && got != -EAGAIN) {
        CHECK(!clean, "reading says %lld", (long long)got);
        ours.over = true;
    }
}

static void we_write(void)
{
    uint8_t data[8192];
    uint64_t n = 1 + below(sizeof data);
    n = cl_min(n, ours.wants - ours.wrote);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(false, ours.wrote + i);
    int64_t took = cl_tcp_host_write(host, sock, data, (int64_t)n);
    if (took > 0)
        ours.wrote += (uint64_t)took;
    else if (took != -EAGAIN && took != 0) {
        CHECK(!clean, "writing says %lld", (long long)took);
        ours.over = true;
    }
}

static void we_close(bool abort)
{
    CHECK_EQ(cl_tcp_host_close(host, sock, abort), 0);
    sock = -1;
    ours.over = true;
}

static void we_act(void)
{
    uint32_t peer;
    uint16_t port;
    if (sock < 0 && listener >= 0 && !ours.over) {
        int s = cl_tcp_host_accept(host, listener, &peer, &port);
        sock = s >= 0 ? s : -1;
    }
    if (sock < 0)
        return;
    int rc = cl_tcp_host_connected(host, sock);
    if (!clean && chance() < 3) {
        we_close(below(2));
        return;
    }
    if (rc) {
        CHECK(rc == -EINPROGRESS || !clean, "connecting says %d", rc);
        if (rc != -EINPROGRESS)
            we_close(false);
        return;
    }
    if (!ours.eof && !ours.over && !below(ours.slow))
        we_read();
    if (!ours.shut && !ours.over && ours.wrote < ours.wants)
        we_write();
    if (!ours.shut && !ours.over && ours.wrote == ours.wants) {
        int code = cl_tcp_host_shutdown(host, sock);
        CHECK(code == 0 || !clean);
        ours.shut = true;
    }
    if (ours.over || (ours.shut && ours.eof))
        we_close(false);
}

#endif
