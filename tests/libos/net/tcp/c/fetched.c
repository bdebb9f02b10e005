/* Kthreads that have nothing to do fetch the pages of what connections will need next (runtime/ahead.h), and of nothing
 * before the first one. argv: kthreads of the runtime. Prints "ok". */
#include "libos/internal.h"
#include "libos/net/chunk.h"
#include "libos/net/tcp/net.h"
#include "tests/libos/net/c/pair.h"
#include "tests/libos/net/tcp/c/endpoints.h"

#include <sched.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define PORT 7
#define CACHED 64 /* that leave the depot with the first one */

static bool is_there(const void *at)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    unsigned char there;
    CHECK_EQ(mincore((void *)((uintptr_t)at & ~(page - 1)), 1, &there), 0);
    return there & 1;
}

static void on_opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    CHECK_EQ(cl_tcp_write(c, "x", 1), 1);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)c, (void)arg;
    CHECK(len == 1 && data[0] == 'x');
    cl_wait_group_done(&all);
    return 1;
}

static const struct cl_tcp_events asks = {.opened = on_opened, .data = on_data};

static void connects(void *arg)
{
    (void)arg;
    CHECK_EQ(cl_runtime_connect_tcp(rt_a, IP_B, PORT, &asks, NULL), 0);
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 2);
    alarm(100);
    pair_new(1, (unsigned)atoi(argv[1]), 0);
    CHECK_EQ(cl_runtime_listen_tcp(rt_b, PORT, 10, &echo_events, NULL), 0);
    pair_start();
    const struct cl_tcp_net *net = cl_tcp_net_of(rt_b->nif);
    const struct cl_chunks *chunks = rt_b->nif->chunks;
    uint64_t bytes;
    cl_chunks_left(chunks, &bytes);
    uint32_t few = CACHED * CL_AHEAD_TIMES, chunks_ahead = CACHED + few, blocks_ahead = CACHED + few;
    CHECK(few < bytes / CL_CHUNK_BYTES / CL_CHUNKS_AHEAD && few < net->ahead.ahead,
          "one connection takes less than many");
    CHECK(!is_there(cl_chunk_of(chunks, 0)) && !is_there(net->blocks), "nobody has connected");
    CHECK(is_there(&net->table.buckets[0]) && is_there(&net->table.buckets[net->table.mask]));
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, connects, NULL), 0);
    pair_wait();
    while (!is_there(cl_chunk_of(chunks, chunks_ahead - 1)) || !is_there(&net->blocks[blocks_ahead - 1]))
        sched_yield();
    CHECK(!is_there(cl_chunk_of(chunks, 2 * chunks_ahead)) && !is_there(&net->blocks[2 * blocks_ahead]));
    pair_stop();
    pair_delete();
    puts("ok");
    return 0;
}
