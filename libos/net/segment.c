/* See segment.h. */
#include "segment.h"

#define HEADER 20

enum { END = 0, NOP = 1, MSS = 2, WSCALE = 3, SACK_OK = 4, SACK = 5, TIMES = 8 };

static uint16_t get16(const uint8_t *at)
{
    return cl_be16(cl_get16(at));
}

static uint32_t get32(const uint8_t *at)
{
    return cl_be32(cl_get32(at));
}

static uint8_t *put16(uint8_t *at, uint32_t value)
{
    at[0] = (uint8_t)(value >> 8);
    at[1] = (uint8_t)value;
    return at + 2;
}

static uint8_t *put32(uint8_t *at, uint32_t value)
{
    return put16(put16(at, value >> 16), value);
}

static void read_sack(const uint8_t *at, unsigned len, struct cl_tcp_options *o)
{
    o->n_sack = 0;
    for (unsigned i = 0; i < CL_TCP_MAX_SACKS && 2 + 8 * (i + 1) <= len; i++)
        o->sack[o->n_sack++] = (struct cl_tcp_range){get32(at + 2 + 8 * i), get32(at + 6 + 8 * i)};
}

/* Whether an option of that kind may have `len` bytes. */
static bool right_length(uint8_t kind, unsigned len)
{
    switch (kind) {
    case MSS:
        return len == 4;
    case WSCALE:
        return len == 3;
    case SACK_OK:
        return len == 2;
    case SACK:
        return len >= 10 && (len - 2) % 8 == 0;
    case TIMES:
        return len == 10;
    }
    return true;
}

static void read_option(const uint8_t *at, unsigned len, struct cl_tcp_options *o)
{
    switch (at[0]) {
    case MSS:
        o->mss = get16(at + 2);
        o->has |= CL_TCPO_MSS;
        break;
    case WSCALE:
        o->wscale = cl_min(at[2], (uint8_t)CL_TCP_MAX_WSCALE);
        o->has |= CL_TCPO_WSCALE;
        break;
    case SACK_OK:
        o->has |= CL_TCPO_SACK_OK;
        break;
    case SACK:
        read_sack(at, len, o);
        break;
    case TIMES:
        o->ts_val = get32(at + 2);
        o->ts_ecr = get32(at + 6);
        o->has |= CL_TCPO_TIMES;
        break;
    }
}

static void read_options(const uint8_t *at, unsigned left, struct cl_tcp_options *o)
{
    while (left && at[0] != END) {
        unsigned len = at[0] == NOP ? 1 : left >= 2 ? at[1] : 0;
        if (len > left || (at[0] != NOP && (len < 2 || !right_length(at[0], len)))) {
            o->malformed = 1;
            return;
        }
        read_option(at, len, o);
        at += len;
        left -= len;
    }
}

bool cl_tcp_segment_read(const uint8_t *bytes, unsigned len, struct cl_tcp_segment *out)
{
    unsigned header = len < HEADER ? 0 : 4u * (bytes[12] >> 4);
    if (header < HEADER || header > len)
        return false;
    out->seq = get32(bytes + 4);
    out->ack = get32(bytes + 8);
    out->window = get16(bytes + 14);
    out->urgent = get16(bytes + 18);
    out->flags = bytes[13];
    out->header_len = (uint8_t)header;
    out->len = (uint16_t)(len - header);
    out->ecn = 0;
    out->options.has = out->options.wscale = out->options.n_sack = out->options.malformed = 0;
    out->options.mss = 0;
    out->options.ts_val = out->options.ts_ecr = 0;
    read_options(bytes + HEADER, header - HEADER, &out->options);
    return true;
}

/* Options stand so that their numbers lie on multiples of four: as receivers' fast paths expect them (RFC 7323,
 * appendix A). */
static uint8_t *write_options(const struct cl_tcp_options *o, uint8_t *at, const uint8_t *end)
{
    if (o->has & CL_TCPO_MSS) {
        *at++ = MSS;
        *at++ = 4;
        at = put16(at, o->mss);
    }
    if (o->has & CL_TCPO_TIMES) {
        *at++ = o->has & CL_TCPO_SACK_OK ? SACK_OK : NOP; /* two bytes, as two fillers */
        *at++ = o->has & CL_TCPO_SACK_OK ? 2 : NOP;
        *at++ = TIMES;
        *at++ = 10;
        at = put32(put32(at, o->ts_val), o->ts_ecr);
    } else if (o->has & CL_TCPO_SACK_OK) {
        *at++ = NOP;
        *at++ = NOP;
        *at++ = SACK_OK;
        *at++ = 2;
    }
    if (o->has & CL_TCPO_WSCALE) {
        *at++ = NOP;
        *at++ = WSCALE;
        *at++ = 3;
        *at++ = o->wscale;
    }
    unsigned room = (unsigned)(end - at), n = cl_min((unsigned)o->n_sack, room < 12 ? 0 : (room - 4) / 8);
    if (n) {
        *at++ = NOP;
        *at++ = NOP;
        *at++ = SACK;
        *at++ = (uint8_t)(2 + 8 * n);
        for (unsigned i = 0; i < n; i++)
            at = put32(put32(at, o->sack[i].from), o->sack[i].to);
    }
    return at;
}

unsigned cl_tcp_segment_write(const struct cl_tcp_segment *s, uint16_t from_port, uint16_t to_port, uint8_t *bytes)
{
    unsigned len = (unsigned)(write_options(&s->options, bytes + HEADER, bytes + HEADER + CL_TCP_MAX_OPTIONS) - bytes);
    uint8_t *at = put16(put16(bytes, from_port), to_port);
    at = put32(put32(at, s->seq), s->ack);
    *at++ = (uint8_t)(len / 4 << 4);
    *at++ = s->flags;
    at = put16(at, s->window);
    at = put16(at, 0);
    put16(at, s->urgent);
    return len;
}

bool cl_tcp_segment_refuse(const struct cl_tcp_segment *s, struct cl_tcp_segment *reset)
{
    *reset = (struct cl_tcp_segment){.flags = CL_TCPF_RST};
    if (s->flags & CL_TCPF_ACK) {
        reset->seq = s->ack;
    } else {
        reset->flags |= CL_TCPF_ACK;
        reset->ack = s->seq + cl_tcp_segment_space(s);
    }
    return !(s->flags & CL_TCPF_RST);
}
