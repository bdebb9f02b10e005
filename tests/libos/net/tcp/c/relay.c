/* A relay for tests: what comes over a connection to a port of ours goes to a port of Linux, and back. Stream sockets,
 * two uthreads a connection. If a peer resets its side, the other side is reset, too. */
#include <corelane/libos/libos.h>
#include <corelane/libos/stream.h>

#include <errno.h>
#include <stdlib.h>

#define BLOCK 16384

static struct {
    struct cl_runtime *rt;
    struct cl_tcp_addr to;
    struct cl_stream *listener;
} relay;
/* Connections that were; that a peer has reset; that could not be opened, or ended with another error. */
static uint64_t relayed, reset, failed;

/* A connection: ours with who came, and ours with whom it goes to. */
struct pair {
    struct cl_stream *ends[2];
    bool reset; /* by whoever: set by either direction, and read when both are done */
};

static void count(uint64_t *what)
{
    __atomic_fetch_add(what, 1, __ATOMIC_RELAXED);
}

/* One direction, to its end. Its end is handed on, too. */
static void pump(struct pair *p, unsigned from)
{
    char data[BLOCK];
    int64_t n = 0, took = 0;
    while (took == n && (n = cl_stream_read(p->ends[from], data, BLOCK, -1)) > 0)
        took = cl_stream_write(p->ends[!from], data, n, -1);
    if (took >= 0 && took < n) /* why, says the next call */
        took = cl_stream_write(p->ends[!from], data, 1, -1);
    int64_t error = n < 0 ? n : took;
    if (error == -ECONNRESET || error == -EPIPE)
        __atomic_store_n(&p->reset, true, __ATOMIC_RELAXED);
    else if (error < 0)
        count(&failed);
    (void)cl_stream_shutdown(p->ends[!from], CL_STREAM_WRITE);
}

static void pump_back(void *arg)
{
    pump(arg, 1);
}

static void carry(void *arg)
{
    struct pair *p = arg;
    cl_uthread_id back;
    if (cl_stream_connect(relay.rt, NULL, &relay.to, 20000000000, &p->ends[1])) {
        count(&failed);
        (void)cl_stream_abort(p->ends[0]);
        free(p);
        return;
    }
    (void)cl_stream_set(p->ends[0], CL_STREAM_NO_DELAY, 1);
    (void)cl_stream_set(p->ends[1], CL_STREAM_NO_DELAY, 1);
    if (cl_uthread_spawn(pump_back, p, &back))
        abort();
    pump(p, 0);
    (void)cl_uthread_join(back);
    for (unsigned i = 0; i < 2; i++)
        (void)(p->reset ? cl_stream_abort(p->ends[i]) : cl_stream_close(p->ends[i], 0));
    if (p->reset)
        count(&reset);
    count(&relayed);
    free(p);
}

static void accept_all(void *arg)
{
    struct pair *p;
    (void)arg;
    for (;;) {
        p = calloc(1, sizeof *p);
        if (!p || cl_stream_accept(relay.listener, -1, &p->ends[0]))
            break;
        if (cl_runtime_spawn(relay.rt, carry, p))
            abort();
    }
    free(p);
}

CL_API int relay_begin(struct cl_runtime *rt, uint16_t port, uint32_t ipv4, uint16_t to_port)
{
    relay.rt = rt;
    relay.to = (struct cl_tcp_addr){ipv4, to_port, 0};
    relayed = reset = failed = 0;
    int rc = cl_stream_listen(rt, port, 1024, &relay.listener);
    return rc ? rc : cl_runtime_spawn(rt, accept_all, NULL);
}

CL_API uint64_t relay_done(void)
{
    return __atomic_load_n(&relayed, __ATOMIC_RELAXED);
}

CL_API uint64_t relay_reset(void)
{
    return __atomic_load_n(&reset, __ATOMIC_RELAXED);
}

CL_API uint64_t relay_failed(void)
{
    return __atomic_load_n(&failed, __ATOMIC_RELAXED);
}
