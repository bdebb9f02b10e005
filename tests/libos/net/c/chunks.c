/* Memory of bytes: what waits for readers takes up to the bound, then is refused and counted, and all of it comes back;
 * the NIC's buffers do not wait with it, so that another port is served meanwhile. Prints "ok". */
#include "libos/net/chunk.h"
#include "pair.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BOUND (64 * CL_CHUNK_BYTES)
#define SENT 200

static struct cl_udp_socket *sender, *reader;
static struct cl_udp_addr slow = {IP_B, 5000, 0}, other = {IP_B, 5001, 0};

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room, (void)arg;
    memcpy(reply, request, (size_t)len);
    return len;
}

static void fill(void *arg)
{
    uint8_t data[1000] = {0};
    (void)arg;
    CHECK_EQ(cl_udp_open(rt_a, 0, 0, &sender), 0);
    CHECK_EQ(cl_udp_sendto(sender, data, 1, &other), 1);
    CHECK_EQ(cl_udp_recvfrom(sender, data, 1, NULL, 20000 * MS), 1);
    for (unsigned i = 0; i < SENT; i++) {
        memset(data, (int)i, sizeof data);
        CHECK_EQ(cl_udp_sendto(sender, data, sizeof data, &slow), sizeof data);
        CHECK_EQ(cl_udp_sendto(sender, data, 1, &other), 1);
        CHECK_EQ(cl_udp_recvfrom(sender, data, 1, NULL, 20000 * MS), 1);
    }
    cl_wait_group_done(&all);
}

static void check_full(void)
{
    struct cl_chunk_stats s;
    struct cl_net_stats net;
    CHECK_EQ(cl_runtime_chunk_stats(rt_b, CL_CHUNKS_UDP, &s), 0);
    CHECK_EQ(cl_runtime_chunk_stats(rt_b, CL_CHUNKS_HOLDERS, &s), -EINVAL);
    cl_runtime_net_stats(rt_b, -1, &net);
    CHECK_EQ(s.bound_bytes, BOUND);
    CHECK_EQ(s.held_bytes, BOUND);
    CHECK_EQ(s.refused, SENT - 64);
    CHECK_EQ(net.dropped[CL_DROP_UDP_NO_CHUNK], SENT - 64);
}

static void read_all(void *arg)
{
    uint8_t data[1000];
    (void)arg;
    for (unsigned i = 0; i < 64; i++) {
        CHECK_EQ(cl_udp_recvfrom(reader, data, sizeof data, NULL, 0), sizeof data);
        CHECK(data[0] == i && data[999] == i);
    }
    CHECK_EQ(cl_udp_recvfrom(reader, data, sizeof data, NULL, 0), -EAGAIN);
    cl_wait_group_done(&all);
}

static void run(struct cl_runtime *rt, cl_uthread_fn fn)
{
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt, fn, NULL), 0);
    pair_wait();
}

/* The pool alone: chains of every length, and what is refused leaves nothing behind. */
static void chains(void)
{
    static uint8_t data[41 * CL_CHUNK_ROOM], back[sizeof data];
    struct cl_chunks *c = cl_chunks_new(40 * CL_CHUNK_BYTES + 100, 2);
    struct cl_chunk_stats s;
    CHECK(c != NULL);
    for (unsigned i = 0; i < sizeof data; i++)
        data[i] = (uint8_t)(i * 31 / 7);
    for (uint32_t len = 0; len <= 4 * CL_CHUNK_ROOM; len += len % CL_CHUNK_ROOM < 3 ? 1 : 677) {
        struct cl_chunk *chain = cl_chunks_copy(c, 0, CL_CHUNKS_UDP, data, len);
        CHECK(chain != NULL);
        memset(back, 0, sizeof back);
        CHECK_EQ(cl_chunks_read(chain, back, sizeof back), len);
        CHECK_EQ(memcmp(data, back, len), 0);
        CHECK_EQ(cl_chunks_read(chain, back, len / 2), len / 2);
        cl_chunks_free(c, len % 2, CL_CHUNKS_UDP, chain); /* also by another kthread */
    }
    CHECK(cl_chunks_copy(c, 0, CL_CHUNKS_UDP, data, 40 * CL_CHUNK_ROOM + 1) == NULL);
    cl_chunks_stats(c, CL_CHUNKS_UDP, &s);
    CHECK(s.held_bytes == 0 && s.refused == 1 && s.bound_bytes == 40 * CL_CHUNK_BYTES);
    cl_chunks_delete(c);
}

int main(void)
{
    chains();
    pair_new(1, 1, 0);
    cl_runtime_delete(rt_b);
    struct cl_runtime_config config = {.nic = ends[1], .kthreads = 1, .chunk_bytes = BOUND};
    CHECK_EQ(cl_runtime_new(&config, &rt_b, err), 0);
    CHECK_EQ(cl_runtime_bind_udp(rt_b, 5001, echo, NULL), 0);
    CHECK_EQ(cl_udp_open(rt_b, 5000, 4096, &reader), 0);
    pair_start();
    run(rt_a, fill);
    check_full();
    run(rt_b, read_all);
    struct cl_chunk_stats s;
    cl_runtime_chunk_stats(rt_b, CL_CHUNKS_UDP, &s);
    CHECK_EQ(s.held_bytes, 0);
    pair_stop();
    pair_delete();
    printf("ok\n");
    return 0;
}
