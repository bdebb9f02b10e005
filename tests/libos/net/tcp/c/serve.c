/* Handlers of byte streams, in turns and in bursts, on several kthreads: frames of a length and bytes, each answered by
 * the sum of its bytes. Clients send them cut anywhere, many without waiting for answers; some end in the middle, some
 * are sent what cannot be. argv: kthreads, clients, seed. Prints "ok". */
#include "tests/libos/net/c/pair.h"

#include <errno.h>
#include <string.h>

#define PORT 7 /* in turns; the next one: in bursts */
#define WAIT (60000 * MS)
#define HEAD 4
#define ANSWER 4
#define MOST 12000
#define FRAMES 8
#define BAD 0xffff

static uint64_t seed, answered, expected_errors;

static uint32_t number_at(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

static void put_number(uint8_t *p, uint32_t n)
{
    for (unsigned i = 0; i < 4; i++)
        p[i] = (uint8_t)(n >> (24 - 8 * i));
}

static uint32_t sum_of(const uint8_t *data, uint32_t n)
{
    uint32_t sum = n;
    for (uint32_t i = 0; i < n; i++)
        sum = sum * 31 + data[i];
    return sum;
}

static int64_t frames(const uint8_t *data, int64_t len, uint8_t *reply, int64_t room, int64_t *out, void *arg)
{
    CHECK(arg == &seed && room >= ANSWER && *out == 0);
    if (len < HEAD)
        return 0;
    uint32_t n = number_at(data);
    if (n == BAD)
        return -7;
    if (n == 0) { /* the end that its client asks for */
        *out = ANSWER;
        put_number(reply, 0);
        return -1;
    }
    if (len < HEAD + (int64_t)n)
        return 0;
    put_number(reply, sum_of(data + HEAD, n));
    *out = ANSWER;
    __atomic_fetch_add(&answered, 1, __ATOMIC_RELAXED);
    return HEAD + (int64_t)n;
}

static void bursts(struct cl_tcp_item *items, unsigned n, void *arg)
{
    CHECK(n >= 1 && n <= CL_TCP_ITEMS);
    for (unsigned i = 0; i < n; i++)
        if (items[i].len) /* else it is over */
            items[i].took = frames(items[i].data, items[i].len, items[i].reply, items[i].room, &items[i].answered, arg);
}

static void client(void *arg)
{
    static const uint8_t head[3][HEAD] = {{0, 0, 0, 0}, {0, 0, BAD >> 8, BAD & 255}, {0, 0, 1, 0}};
    uint64_t number = (uintptr_t)arg, state = seed + number;
    struct cl_tcp_addr to = {IP_B, (uint16_t)(PORT + number % 2), 0};
    uint8_t frame[HEAD + MOST], answer[ANSWER];
    uint32_t sums[FRAMES];
    struct cl_stream *s;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), 0);
    for (unsigned f = 0; f < FRAMES; f++) {
        uint32_t n = 1 + (uint32_t)(next_random(&state) % (next_random(&state) % 3 ? 300 : MOST));
        put_number(frame, n);
        for (uint32_t i = 0; i < n; i++)
            frame[HEAD + i] = (uint8_t)next_random(&state);
        sums[f] = sum_of(frame + HEAD, n);
        uint32_t cut = (uint32_t)(next_random(&state) % (HEAD + n));
        CHECK_EQ(cl_stream_write(s, frame, cut, WAIT), cut);
        if (next_random(&state) % 2)
            cl_uthread_sleep_ns(next_random(&state) % 50000);
        CHECK_EQ(cl_stream_write(s, frame + cut, HEAD + n - cut, WAIT), HEAD + n - cut);
    }
    for (unsigned f = 0; f < FRAMES; f++) {
        for (int64_t at = 0, got; at < ANSWER; at += got)
            CHECK((got = cl_stream_read(s, answer + at, ANSWER - at, WAIT)) > 0);
        CHECK_EQ(number_at(answer), sums[f]);
    }
    unsigned how = (unsigned)(number / 2 % 3);
    CHECK_EQ(cl_stream_write(s, head[how], HEAD, WAIT), HEAD);
    if (how == 2) /* an end in the middle */
        CHECK_EQ(cl_stream_shutdown(s, CL_STREAM_WRITE), 0);
    else if (how == 0)
        CHECK_EQ(cl_stream_read(s, answer, ANSWER, WAIT), ANSWER);
    CHECK_EQ(cl_stream_read(s, answer, ANSWER, WAIT), how ? -ECONNRESET : 0);
    CHECK_EQ(cl_stream_close(s, 0), 0);
    __atomic_fetch_add(&expected_errors, how != 0, __ATOMIC_RELAXED);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    static const uint8_t macs[2][6] = {{2, 0, 0, 0, 0, 1}, {2, 0, 0, 0, 0, 2}};
    CHECK(argc == 4);
    unsigned kthreads = (unsigned)atoi(argv[1]), clients = (unsigned)atoi(argv[2]);
    seed = strtoull(argv[3], NULL, 0);
    pair_new(kthreads, kthreads, 0);
    CHECK_EQ(cl_runtime_add_neighbour(rt_a, IP_B, macs[1]), 0);
    CHECK_EQ(cl_runtime_add_neighbour(rt_b, IP_A, macs[0]), 0);
    CHECK_EQ(cl_runtime_serve_tcp(rt_b, PORT, 4096, CL_TCP_WINDOW_MOST + 1, frames, &seed), -EINVAL);
    CHECK_EQ(cl_runtime_serve_tcp(rt_b, PORT, 4096, 0, frames, &seed), 0);
    CHECK_EQ(cl_runtime_serve_tcp(rt_b, PORT, 4096, 0, frames, &seed), -EADDRINUSE);
    CHECK_EQ(cl_runtime_serve_tcp_foreign(rt_b, PORT, 4096, 0, bursts, &seed), -EADDRINUSE);
    CHECK_EQ(cl_runtime_serve_tcp_foreign(rt_b, PORT + 1, 4096, 0, bursts, &seed), 0);
    pair_start();
    cl_wait_group_add(&all, clients);
    for (uintptr_t i = 0; i < clients; i++)
        CHECK_EQ(cl_runtime_spawn(rt_a, client, (void *)i), 0);
    pair_wait();
    pair_stop();
    struct cl_net_stats stats;
    cl_runtime_net_stats(rt_b, -1, &stats);
    CHECK_EQ(answered, (uint64_t)clients * FRAMES);
    CHECK_EQ(stats.handler_errors, expected_errors);
    struct cl_chunk_stats send, receive;
    CHECK_EQ(cl_runtime_chunk_stats(rt_b, CL_CHUNKS_TCP_SEND, &send), 0);
    CHECK_EQ(cl_runtime_chunk_stats(rt_b, CL_CHUNKS_TCP_RECEIVE, &receive), 0);
    CHECK_EQ(send.held_bytes + receive.held_bytes, 0);
    pair_delete();
    printf("ok\n");
    return 0;
}
