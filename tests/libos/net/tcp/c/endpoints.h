/* Two users of connections in the event form: one that sends back what comes, and one that sends a pattern and looks at
 * what comes back. The second counts those that are over in `fetched`, and asks `fetched_fn` to tell. */
#ifndef TESTS_LIBOS_TCP_ENDPOINTS_H
#define TESTS_LIBOS_TCP_ENDPOINTS_H

#include <corelane/libos/libos.h>
#include "tests/support/c/check.h"

#include <errno.h>
#include <string.h>

static uint64_t echo_errors; /* connections of the echo that ended with one. Added to by anybody */

static void echo_opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_no_delay(c, true);
}

static int64_t echo_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)arg;
    return cl_tcp_write(c, data, len);
}

static void echo_writable(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_resume(c);
}

static void echo_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void echo_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    (void)c, (void)arg;
    if (error &&
        error != ESHUTDOWN) /* the peer is done before its last acknowledgement is here: then we may be stopped */
        __atomic_fetch_add(&echo_errors, 1, __ATOMIC_RELAXED);
}

static const struct cl_tcp_events echo_events = {
    .opened = echo_opened, .data = echo_data, .writable = echo_writable, .eof = echo_eof, .ended = echo_ended};

/* One that fetches. */
struct fetch {
    uint64_t number, bytes, wrote, read;
    int error;
    bool opened, eof, ended;
};

static uint64_t fetched; /* over. Added to by anybody */
static void (*fetched_fn)(void);

static uint8_t pattern(uint64_t number, uint64_t at)
{
    return (uint8_t)(number * 31 + at * 7 + (at >> 9));
}

static void fetch_write(struct cl_tcp_conn *c, struct fetch *f)
{
    uint8_t data[3000];
    while (f->wrote < f->bytes) {
        uint64_t n = f->bytes - f->wrote < sizeof data ? f->bytes - f->wrote : sizeof data;
        for (uint64_t i = 0; i < n; i++)
            data[i] = pattern(f->number, f->wrote + i);
        int64_t took = cl_tcp_write(c, data, (int64_t)n);
        CHECK(took >= 0);
        f->wrote += (uint64_t)took;
        if ((uint64_t)took < n)
            return;
    }
    cl_tcp_shutdown(c);
}

static void fetch_opened(struct cl_tcp_conn *c, void *arg)
{
    struct fetch *f = arg;
    CHECK(!f->opened);
    f->opened = true;
    fetch_write(c, f);
}

static int64_t fetch_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct fetch *f = arg;
    (void)c;
    CHECK(f->opened && !f->eof);
    for (int64_t i = 0; i < len; i++)
        CHECK(data[i] == pattern(f->number, f->read + (uint64_t)i), "connection %llu, byte %llu",
              (unsigned long long)f->number, (unsigned long long)f->read + (unsigned long long)i);
    f->read += (uint64_t)len;
    return len;
}

static void fetch_writable(struct cl_tcp_conn *c, void *arg)
{
    fetch_write(c, arg);
}

static void fetch_eof(struct cl_tcp_conn *c, void *arg)
{
    struct fetch *f = arg;
    f->eof = true;
    cl_tcp_close(c);
}

static void fetch_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    struct fetch *f = arg;
    (void)c;
    CHECK(!f->ended);
    f->ended = true;
    f->error = error;
    __atomic_fetch_add(&fetched, 1, __ATOMIC_RELEASE); /* after what is in f */
    if (fetched_fn)
        fetched_fn();
}

static const struct cl_tcp_events fetch_events = {
    .opened = fetch_opened, .data = fetch_data, .writable = fetch_writable, .eof = fetch_eof, .ended = fetch_ended};

#endif
