/* libFuzzer: whatever a server sends as an answer, no byte behind what came is read, what is taken is no longer than
 * what came, and the same bytes in a longer buffer are worth the same. The first two bytes choose what was asked for; a
 * third of the inputs begin as a right answer does. */
#include "bench/load/sockload/sockload.h"

#include <stdlib.h>
#include <string.h>

#define REQUIRE(what)                                                                                                  \
    do {                                                                                                               \
        if (!(what))                                                                                                   \
            __builtin_trap();                                                                                          \
    } while (0)
#define PROTOCOLS 4

static struct cl_sockload *made[PROTOCOLS];

static struct cl_sockload *engine(uint32_t protocol)
{
    static const uint16_t key_bytes = 9;
    static const uint32_t value_bytes = 5;
    struct cl_sockload_config config = {
        .protocol = protocol,
        .address = "127.0.0.1",
        .port = 9,
        .key_bytes = &key_bytes,
        .n_key_bytes = 1,
        .value_bytes = &value_bytes,
        .n_value_bytes = 1,
        .keys = 100,
    };
    char err[256];
    if (!made[protocol])
        REQUIRE(!cl_sockload_new(&config, &made[protocol], err));
    return made[protocol];
}

/* What a right answer begins with. */
static size_t beginning(const struct cl_sockload *s, uint32_t protocol, uint64_t key, char *out)
{
    static const char *const texts[PROTOCOLS] = {"", "VALUE ", "$5\r\n",
                                                 "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n"};
    size_t n = strlen(texts[protocol]);
    memcpy(out, texts[protocol], n);
    if (protocol == CL_SOCKLOAD_MEMCACHED) {
        n += cl_sockload_key(s, key, (uint8_t *)out + n);
        memcpy(out + n, " 0 5\r\n", 6);
        n += 6;
    }
    return protocol == CL_SOCKLOAD_ECHO ? (size_t)cl_sockload_write(s, 0, key, 1, (uint8_t *)out, 64) / 2 : n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2)
        return 0;
    char front[512];
    uint32_t protocol = data[0] % PROTOCOLS, op = data[1] % CL_SOCKLOAD_OPS, count = 1 + data[1] / 64, worth, again;
    const struct cl_sockload *s = engine(protocol);
    size_t head = data[0] / PROTOCOLS % 3 ? 0 : beginning(s, protocol, 7, front), n = head + size - 2;
    uint8_t *in = malloc(n ? n : 1); /* of exactly this length: the sanitizer sees what is read behind it */
    memcpy(in, front, head);
    memcpy(in + head, data + 2, size - 2);
    int64_t took = cl_sockload_judge(s, op, 7, count, in, (uint32_t)n, &worth);
    REQUIRE(took <= (int64_t)n);
    if (took > 0) {
        uint8_t *longer = calloc(1, n + 16);
        memcpy(longer, in, n);
        REQUIRE(cl_sockload_judge(s, op, 7, count, longer, (uint32_t)n + 16, &again) == took && again == worth);
        free(longer);
    }
    free(in);
    return 0;
}
