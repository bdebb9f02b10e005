/* cl_csum_copy and its plain form against RFC 1071 byte by byte: every length up to some rounds of the wide loop, at
 * random alignments of both sides, and random longer ones; exactly sized memory, so that a sanitizer sees a byte too
 * many. Usage: csum_copy SEED; prints whether the wide form was there. */
#include "runtime/csum_copy.h"
#include "runtime/net.h"
#include "tests/support/c/check.h"

#include <string.h>

typedef uint64_t (*copy_fn)(uint64_t sum, void *to, const void *from, size_t n);

/* Section 4.1: pairs of bytes as big-endian words, an odd last one padded with a zero; then folded. */
static uint16_t by_definition(uint16_t start, const uint8_t *p, size_t n)
{
    uint64_t sum = start;
    for (size_t i = 0; i < n; i++)
        sum += i % 2 ? p[i] : (uint64_t)p[i] << 8;
    while (sum >> 16)
        sum = (sum & 0xffff) + (sum >> 16);
    return (uint16_t)sum;
}

static void try_one(copy_fn copy, size_t n, uint64_t *state)
{
    size_t from_at = next_random(state) % 40, to_at = next_random(state) % 40;
    uint8_t *from = malloc(from_at + n), *to = malloc(to_at + n + 1); /* + 1: malloc(0) may be NULL */
    uint16_t start = (uint16_t)next_random(state);
    unsigned kind = (unsigned)(next_random(state) % 4);
    CHECK(from && to);
    for (size_t i = 0; i < from_at + n; i++)
        from[i] = kind == 0 ? 0xff : kind == 1 ? 0 : (uint8_t)next_random(state);
    memset(to, 0x5a, to_at + n + 1);
    uint64_t sum = copy(cl_be16(start), to + to_at, from + from_at, n);
    uint16_t folded = cl_be16((uint16_t)~cl_csum_finish(sum)), want = by_definition(start, from + from_at, n);
    CHECK(folded % 0xffff == want % 0xffff && (folded == 0) == (want == 0), "n %zu: %04x, not %04x", n, folded, want);
    CHECK(memcmp(to + to_at, from + from_at, n) == 0);
    for (size_t i = 0; i < to_at; i++)
        CHECK(to[i] == 0x5a);
    CHECK(to[to_at + n] == 0x5a);
    free(from);
    free(to);
}

int main(int argc, char **argv)
{
    uint64_t state = (argc > 1 ? strtoull(argv[1], NULL, 0) : 1) * 2654435761u + 1;
    static const copy_fn forms[] = {cl_csum_copy, cl_csum_copy_plain};
    for (unsigned form = 0; form < 2; form++) {
        for (size_t n = 0; n < 700; n++)
            for (unsigned i = 0; i < 3; i++)
                try_one(forms[form], n, &state);
        for (unsigned i = 0; i < 100; i++)
            try_one(forms[form], next_random(&state) % 66000, &state);
    }
    printf("%s\n", cl_csum_copy_wide() ? "avx2" : "plain");
    return 0;
}
