/* Feeds arbitrary bytes to a channel: as datagrams, and as datagrams whose magic, checksum, sender and incarnations are
 * right.
 *
 * Under libFuzzer, or by itself: fuzz_channel ROUNDS SEED mutates datagrams of a real channel. */
#include "apps/raft/core/bytes.h"
#include "apps/raft/transport/channel.h"
#include "drivers/random.h"
#include "libos/storage/crc32c.h"
#include <stdio.h>
#include <stdlib.h>

#define KEPT 64
#define MTU 600
#define MS 1000000ull

static struct raft_channel sides[2]; /* 0 is fuzzed; 1 talks to it, so that there are real datagrams */
static uint8_t kept[KEPT][MTU];      /* the newest datagrams to 0 */
static uint32_t kept_bytes[KEPT], n_kept;
static uint64_t now_ns = MS, runs;
static volatile uint64_t sum; /* of what was read */

static void receive(int side, const uint8_t *data, size_t size)
{
    uint32_t bytes;
    uint8_t *copy = malloc(size ? size : 1); /* of exactly that size, for the sanitizer */
    memcpy(copy, data, size);
    const uint8_t *frame = raft_channel_receive(&sides[side], copy, (int64_t)size, now_ns, &bytes);
    for (uint32_t i = 0; frame && i < bytes; i++)
        sum += frame[i]; /* all of it is there to be read */
    free(copy);
}

static int64_t out(void *arg, uint32_t index, const uint8_t *data, uint32_t bytes)
{
    (void)index;
    if (arg == &sides[0]) { /* lost, but for hellos: what 1 would say is what is fuzzed */
        if (data[9] == 2)
            receive(1, data, bytes);
        return bytes;
    }
    memcpy(kept[n_kept % KEPT], data, bytes);
    kept_bytes[n_kept++ % KEPT] = bytes;
    return bytes;
}

static void make(void)
{
    static uint64_t incarnation = 1;
    for (uint32_t i = 0; i < 2; i++) {
        raft_channel_free(&sides[i]);
        raft_channel_init(&sides[i], i + 1, ++incarnation, MTU);
        sides[i].send = out;
        sides[i].arg = &sides[i];
        if (raft_channel_add(&sides[i], 2 - i, 4096))
            abort();
    }
    uint8_t frame[8] = {0};
    raft_channel_send(&sides[0], 2, frame, sizeof(frame), true, now_ns); /* hello */
    for (int i = 0; i < KEPT; i++) {
        uint32_t bytes = kept_bytes[i];
        if (bytes)
            receive(0, kept[i], bytes);
    }
}

static void check(void)
{
    const struct raft_channel_peer *p = &sides[0].peers[0];
    const struct raft_channel_counters *c = &p->count;
    uint32_t n = 0;
    for (uint64_t i = p->first; i < p->next; i++)
        n += p->sent[i % RAFT_CHANNEL_WINDOW].kept;
    bool books = c->datagrams_in ==
                 c->accepted + c->unnumbered + c->control + c->duplicates + c->stale + c->no_room + c->malformed;
    bool numbers = p->came.got <= p->came.highest && p->came.highest - p->came.got <= RAFT_CHANNEL_WINDOW;
    if (p->first > p->next || p->next - p->first > RAFT_CHANNEL_WINDOW || n + p->n_free != RAFT_CHANNEL_WINDOW ||
        !books || !numbers) {
        fprintf(stderr, "first %lu next %lu kept %u free %u got %lu highest %lu\n", p->first, p->next, n, p->n_free,
                p->came.got, p->came.highest);
        abort();
    }
}

static void one_input(const uint8_t *data, size_t size)
{
    uint8_t copy[2048] = {0};
    receive(0, data, size);
    raft_channel_send(&sides[0], 2, copy, (uint32_t)(size % 1500), size % 3 != 0, now_ns);
    if (size >= RAFT_CHANNEL_HEADER && size <= sizeof(copy)) {
        memcpy(copy, data, size);
        put32(copy, 0x54524c43u);
        copy[8] = 1;
        copy[9] &= 3;
        put32(copy + 12, 2);
        if (copy[9] < 2) {
            put64(copy + 16, sides[0].peers[0].theirs);
            put64(copy + 24, sides[0].incarnation);
        }
        put32(copy + 4, cl_crc32c(0, copy + 8, RAFT_CHANNEL_HEADER - 8));
        receive(0, copy, size);
        put32(copy + 56, 0); /* no frame, and something behind the header: words of an acknowledgement, or not */
        put32(copy + 4, cl_crc32c(0, copy + 8, RAFT_CHANNEL_HEADER - 8));
        receive(0, copy, size);
    }
    now_ns += MS / 2;
    raft_channel_poll(&sides[0], now_ns);
    check();
    if (++runs % 512 == 0)
        make(); /* what came may have made a state in which little is taken */
}

#ifdef FUZZER
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!runs)
        make();
    one_input(data, size);
    return 0;
}
#else
int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 0) : 1000, taken = 0;
    struct cl_random draw = {argc > 2 ? strtoull(argv[2], NULL, 0) : 1};
    make();
    for (uint64_t i = 0; i < rounds; i++) {
        uint8_t datagram[MTU] = {0};
        uint64_t before = sides[0].peers[0].count.accepted;
        raft_channel_send(&sides[1], 1, datagram, (uint32_t)cl_random_below(&draw, 500), cl_random_below(&draw, 2),
                          now_ns);
        raft_channel_poll(&sides[1], now_ns);
        uint32_t k = (uint32_t)cl_random_below(&draw, cl_min(n_kept, (uint32_t)KEPT)), bytes = kept_bytes[k];
        memcpy(datagram, kept[k], bytes);
        for (uint64_t n = cl_random_below(&draw, 4); n; n--)
            datagram[cl_random_below(&draw, bytes)] ^= (uint8_t)(1u << cl_random_below(&draw, 8));
        if (cl_random_below(&draw, 8) == 0)
            bytes = (uint32_t)cl_random_below(&draw, bytes);
        one_input(datagram, bytes);
        taken += sides[0].peers[0].count.accepted > before;
    }
    printf("%lu inputs, %lu taken\n", rounds, taken);
    raft_channel_free(&sides[0]);
    raft_channel_free(&sides[1]);
    return 0;
}
#endif
