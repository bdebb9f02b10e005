/* CRC32C: see crc32c.h. */
#include "crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#elif defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define PART_WORDS 128         /* of 8 bytes, of each of three streams at most */
#define STREAM_BYTES 96        /* shorter inputs are done before three streams are joined */

/* Written once, before anybody reads (pthread_once). */
static uint32_t table[8][256]; /* table[k][b]: byte b followed by k zero bytes */
static uint32_t
    later[2 * PART_WORDS + 1]; /* later[n]: x^(64 n - 33), by which a checksum moves on by n words of zeros */
static bool hardware, streams;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static uint32_t times_x(uint32_t v)
{
    return v >> 1 ^ (v & 1 ? POLYNOMIAL : 0);
}

static void init(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint32_t v = b;
        for (unsigned bit = 0; bit < 8; bit++)
            v = times_x(v);
        table[0][b] = v;
    }
    for (unsigned k = 1; k < 8; k++)
        for (unsigned b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
    uint32_t power = 1u << 31; /* x^0 */
    for (unsigned n = 1, exponent = 0; n <= 2 * PART_WORDS; n++) {
        for (; exponent < 64 * n - 33; exponent++)
            power = times_x(power);
        later[n] = power;
    }
#if defined(__x86_64__)
    hardware = __builtin_cpu_supports("sse4.2");
    streams = hardware && __builtin_cpu_supports("pclmul");
#elif defined(__aarch64__)
    hardware = getauxval(AT_HWCAP) & HWCAP_CRC32;
#endif
}

static uint64_t load(const uint8_t *p)
{
    uint64_t v;
    memcpy(&v, p, 8);
    return v;
}

static uint32_t by_tables(uint32_t crc, const uint8_t *p, uint64_t bytes)
{
    for (; bytes >= 8; bytes -= 8, p += 8) {
        uint64_t v = load(p) ^ crc;
        crc = table[7][v & 255] ^ table[6][v >> 8 & 255] ^ table[5][v >> 16 & 255] ^ table[4][v >> 24 & 255] ^
              table[3][v >> 32 & 255] ^ table[2][v >> 40 & 255] ^ table[1][v >> 48 & 255] ^ table[0][v >> 56];
    }
    for (; bytes; bytes--)
        crc = crc >> 8 ^ table[0][(crc ^ *p++) & 255];
    return crc;
}

#if defined(__x86_64__) || defined(__aarch64__)

#if defined(__x86_64__)
#define TARGET __attribute__((target("sse4.2")))
#define STEP8(crc, v) ((uint32_t)__builtin_ia32_crc32di((crc), (v)))
#define STEP1(crc, v) __builtin_ia32_crc32qi((crc), (v))
#else
#define TARGET
static inline uint32_t step8(uint32_t crc, uint64_t v)
{
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w1, %x2" : "=r"(crc) : "r"(crc), "r"(v));
    return crc;
}
static inline uint32_t step1(uint32_t crc, uint8_t v)
{
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w1, %w2" : "=r"(crc) : "r"(crc), "r"((uint32_t)v));
    return crc;
}
#define STEP8(crc, v) step8((crc), (v))
#define STEP1(crc, v) step1((crc), (v))
#endif

#if defined(__x86_64__)
/* A checksum register times x^(64 n - 33): the product of two reflected 32-bit polynomials lies one bit too low in 64
 * bits, and the instruction that takes it in multiplies by x^32 and reduces. So it is the register moved on by n words
 * of zeros. */
__attribute__((target("pclmul,sse4.2"))) static uint64_t product(uint32_t crc, unsigned n)
{
    return (uint64_t)_mm_cvtsi128_si64(
        _mm_clmulepi64_si128(_mm_cvtsi32_si128((int)crc), _mm_cvtsi32_si128((int)later[n]), 0));
}

/* Three streams of n words each. */
__attribute__((target("pclmul,sse4.2"))) static uint32_t three(uint32_t crc, const uint8_t *p, unsigned n)
{
    uint32_t a = crc, b = 0, c = 0;
    uint64_t part = 8ull * n;
    for (const uint8_t *end = p + part; p < end; p += 8) {
        a = STEP8(a, load(p));
        b = STEP8(b, load(p + part));
        c = STEP8(c, load(p + 2 * part));
    }
    return STEP8(0, product(a, 2 * n) ^ product(b, n)) ^ c;
}
#else
static uint32_t three(uint32_t crc, const uint8_t *p, unsigned n)
{
    return by_tables(crc, p, 24ull * n); /* never called: streams is false */
}
#endif

TARGET static uint32_t by_instruction(uint32_t crc, const uint8_t *p, uint64_t bytes)
{
    while (streams && bytes >= STREAM_BYTES) {
        unsigned n = (unsigned)cl_min(bytes / 24, (uint64_t)PART_WORDS);
        crc = three(crc, p, n);
        bytes -= 24ull * n;
        p += 24ull * n;
    }
    for (; bytes >= 8; bytes -= 8, p += 8)
        crc = STEP8(crc, load(p));
    for (; bytes; bytes--)
        crc = STEP1(crc, *p++);
    return crc;
}

#else

static uint32_t by_instruction(uint32_t crc, const uint8_t *p, uint64_t bytes)
{
    return by_tables(crc, p, bytes);
}

#endif

uint32_t cl_crc32c(uint32_t crc, const void *data, uint64_t bytes)
{
    pthread_once(&once, init);
    return ~(hardware ? by_instruction(~crc, data, bytes) : by_tables(~crc, data, bytes));
}

uint32_t cl_crc32c_soft(uint32_t crc, const void *data, uint64_t bytes)
{
    pthread_once(&once, init);
    return ~by_tables(~crc, data, bytes);
}

bool cl_crc32c_hardware(void)
{
    pthread_once(&once, init);
    return hardware;
}
