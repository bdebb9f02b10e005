/* See csum_copy.h. */
#include "csum_copy.h"
#include "net.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define WIDE_BYTES 128 /* a round of the wide loop: what is shorter is done by words */

/* Two words at a time, which every processor of 64 bits adds at once. */
typedef uint64_t pair __attribute__((vector_size(16)));

static inline pair copy_pair(void *to, const void *from)
{
    pair v;
    memcpy(&v, from, sizeof v);
    memcpy(to, &v, sizeof v);
    return (v & 0xffffffff) + (v >> 32);
}

uint64_t cl_csum_copy_plain(uint64_t sum, void *to, const void *from, size_t n)
{
    uint8_t *out = (uint8_t *)to;
    const uint8_t *p = (const uint8_t *)from;
    pair even = {0, 0}, odd = {0, 0};
    for (; n >= 32; n -= 32, p += 32, out += 32) {
        even += copy_pair(out, p);
        odd += copy_pair(out + 16, p + 16);
    }
    even += odd;
    sum += even[0] + even[1];
    if (n == 0)
        return sum;
    memcpy(out, p, n);
    return cl_csum_add(sum, p, n);
}

#if defined(__x86_64__)

/* Written once, when the library is loaded. */
static bool wide;

__attribute__((constructor)) static void look(void)
{
    __builtin_cpu_init();
    wide = __builtin_cpu_supports("avx2");
}

__attribute__((target("avx2"))) static uint64_t by_avx2(uint64_t sum, uint8_t *out, const uint8_t *p, size_t n)
{
    const __m256i low = _mm256_set1_epi64x(0xffffffff);
    __m256i a = _mm256_setzero_si256(), b = a, c = a, d = a; /* four chains of four sums */
    for (; n >= WIDE_BYTES; n -= WIDE_BYTES, p += WIDE_BYTES, out += WIDE_BYTES) {
        __m256i v0 = _mm256_loadu_si256((const __m256i *)p), v1 = _mm256_loadu_si256((const __m256i *)(p + 32));
        __m256i v2 = _mm256_loadu_si256((const __m256i *)(p + 64)), v3 = _mm256_loadu_si256((const __m256i *)(p + 96));
        _mm256_storeu_si256((__m256i *)out, v0);
        _mm256_storeu_si256((__m256i *)(out + 32), v1);
        _mm256_storeu_si256((__m256i *)(out + 64), v2);
        _mm256_storeu_si256((__m256i *)(out + 96), v3);
        a = _mm256_add_epi64(a, _mm256_add_epi64(_mm256_and_si256(v0, low), _mm256_srli_epi64(v0, 32)));
        b = _mm256_add_epi64(b, _mm256_add_epi64(_mm256_and_si256(v1, low), _mm256_srli_epi64(v1, 32)));
        c = _mm256_add_epi64(c, _mm256_add_epi64(_mm256_and_si256(v2, low), _mm256_srli_epi64(v2, 32)));
        d = _mm256_add_epi64(d, _mm256_add_epi64(_mm256_and_si256(v3, low), _mm256_srli_epi64(v3, 32)));
    }
    a = _mm256_add_epi64(_mm256_add_epi64(a, b), _mm256_add_epi64(c, d));
    __m128i s = _mm_add_epi64(_mm256_castsi256_si128(a), _mm256_extracti128_si256(a, 1));
    sum += (uint64_t)_mm_cvtsi128_si64(s) + (uint64_t)_mm_extract_epi64(s, 1);
    return cl_csum_copy_plain(sum, out, p, n);
}

bool cl_csum_copy_wide(void)
{
    return wide;
}

uint64_t cl_csum_copy(uint64_t sum, void *to, const void *from, size_t n)
{
    return wide && n >= WIDE_BYTES ? by_avx2(sum, to, from, n) : cl_csum_copy_plain(sum, to, from, n);
}

#else

bool cl_csum_copy_wide(void)
{
    return false;
}

uint64_t cl_csum_copy(uint64_t sum, void *to, const void *from, size_t n)
{
    return cl_csum_copy_plain(sum, to, from, n);
}

#endif
