/* A computation whose state is in registers, in code of a section of its own: who is switched away from it at any
 * instruction, and back, must find all of them as they were. */
#ifndef TESTS_CHURN_H
#define TESTS_CHURN_H

#include <corelane/runtime/base.h>

#include <string.h>

/* A computation that lives in registers: general, vector, and the flags of a carry chain. */
typedef uint64_t vec __attribute__((vector_size(32)));

static inline __attribute__((always_inline)) uint64_t churn(uint64_t seed, uint64_t rounds, uint64_t *progress)
{
    vec a = {seed, seed + 1, seed + 2, seed + 3}, b = a * 3, c = a + 7, d = b ^ 0x9e3779b97f4a7c15ull;
    double x = (double)(seed % 1000) + 0.5, y = 1.0;
    for (uint64_t i = 0; i < rounds; i++) {
        a = (a ^ (a << 13)) + b;
        b = (b ^ (b >> 7)) + c;
        c = (c << 17) ^ d ^ a;
        d = d * 5 + b;
        x = x * 1.0000001 + y;
        y = y * 0.9999999 + 1e-9 * x;
        if ((i & 0xff) == 0)
            cl_store_relaxed(progress, i + 1);
    }
    vec all = a ^ b ^ c ^ d;
    uint64_t bits[2];
    memcpy(&bits[0], &x, 8);
    memcpy(&bits[1], &y, 8);
    return all[0] ^ all[1] ^ all[2] ^ all[3] ^ bits[0] ^ bits[1];
}

#define NO_SANITIZER __attribute__((noinline, no_sanitize("thread"), no_sanitize("address"), no_sanitize("undefined")))

#if defined(__x86_64__)
__attribute__((target("avx2"))) NO_SANITIZER __attribute__((section("batch_text"))) static uint64_t
churn_wide(uint64_t seed, uint64_t rounds, uint64_t *progress)
{
    return churn(seed, rounds, progress);
}
#endif

NO_SANITIZER __attribute__((section("batch_text"))) static uint64_t churn_plain(uint64_t seed, uint64_t rounds,
                                                                                uint64_t *progress)
{
    return churn(seed, rounds, progress);
}

static uint64_t churn_any(uint64_t seed, uint64_t rounds, uint64_t *progress)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2"))
        return churn_wide(seed, rounds, progress);
#endif
    return churn_plain(seed, rounds, progress);
}

extern char __start_batch_text[], __stop_batch_text[];

#endif
