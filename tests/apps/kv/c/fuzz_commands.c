/* Feeds arbitrary bytes to the command layer: as datagrams, and as a stream cut into pieces, with little room for
 * answers.
 *
 * Under libFuzzer, or by itself: fuzz_commands ROUNDS SEED mutates commands that make sense. */
#include "apps/kv/command.h"
#include "apps/kv/udp.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define ROOM (64 << 10)

static struct cl_kv *store;
static struct cl_kv_server *server;
static uint64_t runs;

static void set_up(void)
{
    struct cl_kv_config config = {.memory_bytes = 1 << 20, .item_max_bytes = 8192, .seed = 1, .manual_clock = 1};
    char err[256];
    if (cl_kv_new(&config, &store, err) || cl_kv_server_new(store, NULL, &server))
        abort();
}

static void check(void)
{
    char err[256];
    if (cl_kv_check(store, err)) {
        fprintf(stderr, "%s\n", err);
        abort();
    }
}

/* The bytes in a block of exactly their size, so that the sanitizer sees each read past their end. */
static uint8_t *tight(const uint8_t *data, size_t size)
{
    uint8_t *copy = malloc(size ? size : 1);
    memcpy(copy, data, size);
    return copy;
}

static void as_datagram(const uint8_t *data, size_t size)
{
    static const uint32_t rooms[] = {1472, 1400, 200, 64, 9, 8, 0};
    uint32_t room = rooms[size % 7];
    uint8_t *request = tight(data, size), *reply = malloc(room ? room : 1);
    struct cl_udp_req req = {.data = request, .len = (int64_t)size, .reply = reply, .room = room};
    cl_kv_udp_batch(cl_kv_server_udp(server, 0), &req, 1);
    if (req.reply_len < 0 || req.reply_len > (int64_t)room)
        abort();
    free(request);
    free(reply);
}

/* A stream arrives in pieces of `step` bytes; what was not consumed is given again with what follows. */
static void as_stream(const uint8_t *data, size_t size, size_t step)
{
    struct cl_kv_session session = {.thread = cl_kv_thread(store, 0)};
    uint8_t *answer = malloc(ROOM);
    uint64_t done = 0, consumed;
    for (size_t have = step; done < size; have += step) {
        size_t end = have < size ? have : size;
        int rc;
        do {
            uint8_t *piece = tight(data + done, end - done);
            struct cl_kv_out out = {.data = answer, .room = ROOM};
            rc = cl_kv_process(&session, piece, end - done, &consumed, &out);
            free(piece);
            if (consumed > end - done || out.len > ROOM)
                abort();
            done += consumed;
        } while (rc == CL_KV_FULL);
        if (rc == CL_KV_QUIT || end == size)
            break;
    }
    free(answer);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!store)
        set_up();
    as_datagram(data, size);
    if (size > 8) {
        as_stream(data + 8, size - 8, 1 + data[0] % 64);
        cl_kv_set_time(store, 2 + data[1]);
    }
    if (++runs % 256 == 0)
        check();
    return 0;
}

#ifndef FUZZER
struct seed {
    const char *bytes;
    size_t len;
};
#define SEED(text)                                                                                                     \
    {                                                                                                                  \
        text, sizeof(text) - 1                                                                                         \
    }

static const struct seed TEXT[] = {
    SEED("get a\r\n"),
    SEED("gets a b c d e f g h i j k l m n o p q r s t\r\n"),
    SEED("set a 1 0 5\r\nhello\r\n"),
    SEED("set n 0 1 2\r\n10\r\nincr n 5\r\ndecr n 99\r\n"),
    SEED("add b 0 -1 0\r\n\r\n"),
    SEED("append a 0 0 3 noreply\r\nabc\r\nprepend a 0 0 1\r\nx\r\n"),
    SEED("replace a 4294967295 100 3\r\nxyz\r\ntouch a 50\r\n"),
    SEED("cas a 0 0 2 7\r\nhi\r\n"),
    SEED("gat 5 a b\r\ngats 0 a\r\n"),
    SEED("delete a 0 noreply\r\nflush_all 10\r\nverbosity 1\r\n"),
    SEED("stats\r\nversion\r\nstats reset\r\n"),
    SEED("stats settings\r\nstats items\r\nstats slabs\r\nstats detail on\r\nget p:1 q:\r\nstats detail dump\r\n"),
    SEED("lru_crawler metadump all\r\nlru_crawler crawl 1,2\r\ncache_memlimit 64\r\nverbosity 1 noreply\r\n"),
    SEED("set big 0 0 9000\r\n"),
    SEED("ms a 5 T30 F7 c k Oabc\r\nhello\r\nmg a v t f h l s k c\r\n"),
    SEED("mg YQ== b k v N30 R20 T60\r\nmd YQ== b I T10 q\r\nmg a v\r\n"),
    SEED("ma n N0 J5 D2 MD v t c\r\nme n\r\nmn\r\nms n 3 MA C1 I\r\n123\r\n"),
};

static const struct seed BINARY[] = {
    SEED("\x80\x01\0\x01\x08\0\0\0\0\0\0\x0eopaq\0\0\0\0\0\0\0\0\0\0\0\7\0\0\0\0ahello"), /* set a */
    SEED("\x80\x00\0\x01\0\0\0\0\0\0\0\x01opaq\0\0\0\0\0\0\0\0a"),                        /* get a */
    SEED("\x80\x0d\0\x01\0\0\0\0\0\0\0\x01opaq\0\0\0\0\0\0\0\0n"),                        /* getkq n */
    SEED("\x80\x05\0\x01\x14\0\0\0\0\0\0\x15opaq\0\0\0\0\0\0\0\0"
         "\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0\5\0\0\0\0n"), /* incr n */
    SEED("\x80\x1d\0\x01\x04\0\0\0\0\0\0\x05opaq\0\0\0\0\0\0\0\0\0\0\0\x1e"
         "a"),                                                              /* gat a */
    SEED("\x80\x0e\0\x01\0\0\0\0\0\0\0\x04opaq\0\0\0\0\0\0\0\0axyz"),       /* append a */
    SEED("\x80\x14\0\x01\0\0\0\0\0\0\0\x01opaq\0\0\0\0\0\0\0\1a"),          /* deleteq a */
    SEED("\x80\x10\0\0\0\0\0\0\0\0\0\0opaq\0\0\0\0\0\0\0\0"),               /* stat */
    SEED("\x80\x0a\0\0\0\0\0\0\0\0\0\0opaq\0\0\0\0\0\0\0\0"),               /* noop */
    SEED("\x80\x08\0\0\x04\0\0\0\0\0\0\4opaq\0\0\0\0\0\0\0\0\0\0\0\x0a"),   /* flush */
    SEED("\x80\x21\0\x05\0\0\0\0\0\0\0\x08opaq\0\0\0\0\0\0\0\0PLAIN\0u\0"), /* sasl auth */
    SEED("\x80\x01\0\x01\x08\0\0\0\xff\xff\xff\xff"
         "opaq\0\0\0\0\0\0\0\0\0\0\0\7\0\0\0\0a"), /* too large */
};

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    uint64_t rounds = strtoull(argv[1], NULL, 10), x = strtoull(argv[2], NULL, 10) | 1;
    uint8_t text[4096];
    for (uint64_t i = 0; i < rounds; i++) {
        size_t len = 8;
        memcpy(text, "\0\1\0\0\0\1\0\0", 8);
        x = x * 6364136223846793005ull + 1442695040888963407ull;
        bool binary = (x >> 50) % 3 == 0;
        for (unsigned k = 0; k <= (x >> 40) % 5; k++) {
            unsigned any = (unsigned)(x >> (k * 5));
            const struct seed *good = binary ? &BINARY[any % (sizeof(BINARY) / sizeof(BINARY[0]))]
                                             : &TEXT[any % (sizeof(TEXT) / sizeof(TEXT[0]))];
            memcpy(text + len, good->bytes, good->len);
            len += good->len;
        }
        for (unsigned k = 0; len && k < (x >> 33) % 8; k++) {
            x = x * 6364136223846793005ull + 1442695040888963407ull;
            size_t at = (x >> 20) % len;
            if ((x >> 60) < 4)
                len = at + 1;
            else if ((x >> 60) < 6)
                memmove(text + at, text + at + 1, --len - at);
            else
                text[at] = (x >> 60) < 10 ? (uint8_t)(x >> 50) : (uint8_t) "0 \r\n-9a\377"[(x >> 50) % 8];
        }
        LLVMFuzzerTestOneInput(text, len);
    }
    check();
    cl_kv_server_delete(server);
    cl_kv_delete(store);
    printf("%lu inputs\n", (unsigned long)runs);
    return 0;
}
#endif
