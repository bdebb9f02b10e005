/* Sequence numbers: modulo 2^32, compared by their difference (RFC 9293, section 3.4). */
#ifndef CORELANE_LIBOS_NET_TCP_SEQ_H
#define CORELANE_LIBOS_NET_TCP_SEQ_H

#include <corelane/runtime/base.h>

static inline bool cl_seq_before(uint32_t a, uint32_t b)
{
    return (int32_t)(a - b) < 0;
}

static inline bool cl_seq_upto(uint32_t a, uint32_t b) /* a is not behind b */
{
    return (int32_t)(a - b) <= 0;
}

static inline uint32_t cl_seq_max(uint32_t a, uint32_t b)
{
    return cl_seq_before(a, b) ? b : a;
}

static inline uint32_t cl_seq_min(uint32_t a, uint32_t b)
{
    return cl_seq_before(a, b) ? a : b;
}

/* Whether low <= seq < high, in that order. */
static inline bool cl_seq_in(uint32_t seq, uint32_t low, uint32_t high)
{
    return seq - low < high - low;
}

#endif
