/* CRC32C: see crc32c.h. */
#include "crc32c.h"

#include <pthread.h>
#include <string.h>

#if defined(__aarch64__)
#include <sys/auxv.h>
#ifndef HWCAP_CRC32
#define HWCAP_CRC32 (1 << 7)
#endif
#endif

#define POLYNOMIAL 0x82f63b78u /* reflected */
#define LONG_BYTES 4096        /* of each of three streams; their joining costs as much as about 200 bytes */
#define SHORT_BYTES 256

/* Written once, before anybody reads (pthread_once). */
static uint32_t table[8][256];      /* table[k][b]: byte b followed by k zero bytes */
static uint32_t shift_long[4][256]; /* a checksum moved on by LONG_BYTES zero bytes, by its four bytes */
static uint32_t shift_short[4][256];
static bool hardware;
static pthread_once_t once = PTHREAD_ONCE_INIT;

/* The checksum register after `bytes` zero bytes, bit by bit of the count: squares of the matrix of one zero byte. */
static uint32_t after_zeros(uint32_t crc, uint64_t bytes)
{
    uint32_t power[32], next[32];
    for (unsigned i = 0; i < 32; i++) {
        uint32_t v = 1u << i;
        power[i] = (v >> 8) ^ table[0][v & 255];
    }
    for (; bytes; bytes >>= 1) {
        if (bytes & 1) {
            uint32_t moved = 0;
            for (unsigned i = 0; i < 32; i++)
                moved ^= crc >> i & 1 ? power[i] : 0;
            crc = moved;
        }
        for (unsigned i = 0; i < 32; i++) {
            next[i] = 0;
            for (unsigned j = 0; j < 32; j++)
                next[i] ^= power[i] >> j & 1 ? power[j] : 0;
        }
        memcpy(power, next, sizeof power);
    }
    return crc;
}

static void init(void)
{
    for (unsigned b = 0; b < 256; b++) {
        uint32_t v = b;
        for (unsigned bit = 0; bit < 8; bit++)
            v = v >> 1 ^ (v & 1 ? POLYNOMIAL : 0);
        table[0][b] = v;
    }
    for (unsigned k = 1; k < 8; k++)
        for (unsigned b = 0; b < 256; b++)
            table[k][b] = table[k - 1][b] >> 8 ^ table[0][table[k - 1][b] & 255];
    for (unsigned k = 0; k < 4; k++)
        for (unsigned b = 0; b < 256; b++) {
            shift_long[k][b] = after_zeros(b << 8 * k, LONG_BYTES);
            shift_short[k][b] = after_zeros(b << 8 * k, SHORT_BYTES);
        }
#if defined(__x86_64__)
    hardware = __builtin_cpu_supports("sse4.2");
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

static uint32_t shifted(uint32_t (*by)[256], uint32_t crc)
{
    return by[0][crc & 255] ^ by[1][crc >> 8 & 255] ^ by[2][crc >> 16 & 255] ^ by[3][crc >> 24];
}

/* Three streams of `part` bytes each. */
TARGET static uint32_t three(uint32_t crc, const uint8_t *p, uint64_t part, uint32_t (*by)[256])
{
    uint32_t a = crc, b = 0, c = 0;
    for (const uint8_t *end = p + part; p < end; p += 8) {
        a = STEP8(a, load(p));
        b = STEP8(b, load(p + part));
        c = STEP8(c, load(p + 2 * part));
    }
    return shifted(by, shifted(by, a) ^ b) ^ c;
}

TARGET static uint32_t by_instruction(uint32_t crc, const uint8_t *p, uint64_t bytes)
{
    for (; bytes >= 3 * LONG_BYTES; bytes -= 3 * LONG_BYTES, p += 3 * LONG_BYTES)
        crc = three(crc, p, LONG_BYTES, shift_long);
    for (; bytes >= 3 * SHORT_BYTES; bytes -= 3 * SHORT_BYTES, p += 3 * SHORT_BYTES)
        crc = three(crc, p, SHORT_BYTES, shift_short);
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
