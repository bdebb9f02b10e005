/* What the tests' C programs say when something is not as it has to be: the line, the condition, and what the caller
 * adds. */
#ifndef TESTS_SUPPORT_CHECK_H
#define TESTS_SUPPORT_CHECK_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

/* A program whose failures need more to be understood defines this before it includes anything: a format, which is a
 * string literal, and what it formats. */
#ifndef CHECK_CONTEXT
#define CHECK_CONTEXT ""
#endif

/* CHECK(condition) or CHECK(condition, format, ...): the end of the process unless it holds. */
#define CHECK(condition, ...)                                                                                          \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: not true: %s ", __FILE__, __LINE__, #condition);                                   \
            fprintf(stderr, " " __VA_ARGS__);                                                                          \
            fprintf(stderr, " " CHECK_CONTEXT);                                                                        \
            fprintf(stderr, "\n");                                                                                     \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

#define CHECK_EQ(a, b)                                                                                                 \
    do {                                                                                                               \
        long long left_ = (long long)(a), right_ = (long long)(b);                                                     \
        CHECK(left_ == right_, "(%s is %lld, not %lld: %s)", #a, left_, right_, #b);                                   \
    } while (0)

/* xorshift64: the state is never 0. */
static inline uint64_t next_random(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

#endif
