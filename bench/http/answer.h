/* Reading an answer of a known kind, for the client: as little as says whether it is right and whole. */
#ifndef CORELANE_BENCH_HTTP_ANSWER_H
#define CORELANE_BENCH_HTTP_ANSWER_H

#include <corelane/runtime/base.h>

#include <stdlib.h>
#include <string.h>

#define CL_BENCH_HEAD 1024

struct cl_bench_answer {
    char head[CL_BENCH_HEAD + 1];
    uint32_t head_len; /* bytes of the head so far */
    int64_t left;      /* of the body; -1: the head is not complete */
    uint64_t body;     /* its whole length */
};

static inline void cl_bench_answer_begin(struct cl_bench_answer *a)
{
    a->head_len = 0;
    a->left = -1;
}

/* What a complete head says. False: another status than 200, or no length. */
static inline bool cl_bench_answer_head(struct cl_bench_answer *a)
{
    a->head[a->head_len] = 0;
    const char *length = strcasestr(a->head, "\r\ncontent-length:");
    if (strncmp(a->head, "HTTP/1.1 200 ", 13) != 0 || !length)
        return false;
    a->left = strtoll(length + 17, NULL, 10);
    a->body = (uint64_t)a->left;
    return a->left >= 0;
}

/* The next bytes. Returns how many were its own; -1: it is wrong. It is whole when left is 0. */
static inline int64_t cl_bench_answer_take(struct cl_bench_answer *a, const uint8_t *data, int64_t len)
{
    int64_t done = 0;
    if (a->left < 0) {
        uint32_t before = a->head_len, n = (uint32_t)cl_min(len, (int64_t)(CL_BENCH_HEAD - before));
        memcpy(a->head + before, data, n);
        uint32_t from = before > 3 ? before - 3 : 0;
        const char *end = memmem(a->head + from, before + n - from, "\r\n\r\n", 4);
        if (!end) {
            a->head_len += n;
            return a->head_len < CL_BENCH_HEAD ? len : -1;
        }
        a->head_len = (uint32_t)(end + 4 - a->head);
        done = a->head_len - before;
        if (!cl_bench_answer_head(a))
            return -1;
    }
    int64_t body = cl_min(a->left, len - done);
    a->left -= body;
    return done + body;
}

#endif
