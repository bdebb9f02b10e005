/* The users of fuzz_kernel.c: they write, read late, half-close, close and reset at any time. */
#ifndef TESTS_LIBOS_TCP_FUZZ_KERNEL_USERS_H
#define TESTS_LIBOS_TCP_FUZZ_KERNEL_USERS_H

#include "tests/libos/net/tcp/c/fuzz_kernel_wire.h"

/* Linux' user. */

static void linux_close(struct round *r, bool abort)
{
    if (abort)
        kernel_reset(r->fd);
    else
        close(r->fd);
    r->fd = -1;
    r->theirs.over = true;
}

static void linux_fails(struct round *r, const char *what)
{
    CHECK(!r->clean, "%s says %s", what, strerror(errno));
    linux_close(r, false);
}

static void linux_reads(struct round *r)
{
    uint8_t data[8192];
    ssize_t got = recv(r->fd, data, 1 + below(r, sizeof data), 0);
    if (got < 0 && errno != EAGAIN)
        linux_fails(r, "reading of Linux");
    for (ssize_t i = 0; i < got; i++, r->theirs.read++)
        CHECK(data[i] == byte_of(false, r->theirs.read), "byte %llu of ours", (unsigned long long)r->theirs.read);
    if (got > 0)
        n_bytes += (uint64_t)got;
    r->theirs.eof |= got == 0;
}

static void linux_writes(struct round *r)
{
    uint8_t data[8192];
    struct app *a = &r->theirs;
    uint64_t most = 1 + below(r, sizeof data), n = cl_min(most, a->wants - a->wrote);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(true, a->wrote + i);
    ssize_t took = send(r->fd, data, n, MSG_NOSIGNAL | (below(r, 4) ? 0 : MSG_MORE));
    if (took > 0)
        a->wrote += (uint64_t)took;
    else if (errno != EAGAIN)
        linux_fails(r, "writing of Linux");
}

static bool linux_is_open(struct round *r)
{
    struct tcp_info info;
    socklen_t len = sizeof info;
    CHECK(getsockopt(r->fd, IPPROTO_TCP, TCP_INFO, &info, &len) == 0);
    return info.tcpi_state != TCP_SYN_SENT && info.tcpi_state != TCP_SYN_RECV;
}

static void linux_acts(struct round *r)
{
    struct app *a = &r->theirs;
    if (r->fd < 0 && r->linux_listener >= 0 && !a->over)
        r->fd = accept4(r->linux_listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (r->fd < 0)
        return;
    if (!r->clean && chance(r) < 3) {
        linux_close(r, below(r, 2));
        return;
    }
    if (!a->open && !(a->open = linux_is_open(r)))
        return;
    if (!a->eof && !below(r, a->slow))
        linux_reads(r);
    if (r->fd >= 0 && !a->shut && a->wrote < a->wants)
        linux_writes(r);
    if (r->fd >= 0 && !a->shut && a->wrote == a->wants) {
        CHECK(shutdown(r->fd, SHUT_WR) == 0 || !r->clean, "shutting of Linux says %s", strerror(errno));
        a->shut = true;
    }
    if (r->fd >= 0 && a->shut && a->eof)
        linux_close(r, false);
}

/* Our user. */

static void we_fail(struct round *r, const char *what, int64_t code)
{
    CHECK(!r->clean, "%s says %lld", what, (long long)code);
    r->ours.over = true;
}

static void we_read(struct round *r)
{
    uint8_t data[8192];
    int64_t got = cl_tcp_host_read(r->host, r->sock, data, 1 + (int64_t)below(r, sizeof data));
    for (int64_t i = 0; i < got; i++, r->ours.read++)
        CHECK(data[i] == byte_of(true, r->ours.read), "byte %llu of Linux'", (unsigned long long)r->ours.read);
    if (got > 0)
        n_bytes += (uint64_t)got;
    r->ours.eof |= got == 0;
    if (got < 0 && got != -EAGAIN)
        we_fail(r, "reading", got);
}

static void we_write(struct round *r)
{
    uint8_t data[8192];
    struct app *a = &r->ours;
    uint64_t most = 1 + below(r, sizeof data), n = cl_min(most, a->wants - a->wrote);
    for (uint64_t i = 0; i < n; i++)
        data[i] = byte_of(false, a->wrote + i);
    int64_t took = cl_tcp_host_write(r->host, r->sock, data, (int64_t)n);
    if (took > 0)
        a->wrote += (uint64_t)took;
    else if (took && took != -EAGAIN)
        we_fail(r, "writing", took);
}

static void we_close(struct round *r, bool abort)
{
    CHECK_EQ(cl_tcp_host_close(r->host, r->sock, abort), 0);
    r->sock = -1;
    r->ours.over = true;
}

/* Whether it is open by now. */
static bool we_are_open(struct round *r)
{
    uint32_t peer;
    uint16_t port;
    if (r->sock < 0 && r->listener >= 0 && !r->ours.over) {
        int s = cl_tcp_host_accept(r->host, r->listener, &peer, &port);
        r->sock = s >= 0 ? s : -1;
    }
    int rc = r->sock < 0 ? -EINPROGRESS : cl_tcp_host_connected(r->host, r->sock);
    if (rc && rc != -EINPROGRESS) {
        we_fail(r, "connecting", rc);
        we_close(r, false);
    }
    return rc == 0;
}

static void we_act(struct round *r)
{
    struct app *a = &r->ours;
    bool open = we_are_open(r);
    if (r->sock >= 0 && !r->clean && chance(r) < 3) {
        we_close(r, below(r, 2));
        return;
    }
    if (!open)
        return;
    if (!a->eof && !below(r, a->slow))
        we_read(r);
    if (!a->shut && !a->over && a->wrote < a->wants)
        we_write(r);
    if (!a->shut && !a->over && a->wrote == a->wants) {
        int code = cl_tcp_host_shutdown(r->host, r->sock);
        CHECK(code == 0 || !r->clean, "shutting says %d", code);
        a->shut = true;
    }
    if (a->over || (a->shut && a->eof))
        we_close(r, false);
}

#endif
