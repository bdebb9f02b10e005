/* The echo protocol, for plain echo servers and for the reference server, and custom requests by functions. */
#include "engine.h"

#include <string.h>

static uint64_t mark_of(uint64_t id)
{
    return cl_sockload_mix64(id ^ 0x636f72656c616e65ull);
}

static int64_t write_echo(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    uint32_t n = s->config.request_bytes;
    struct cl_sockload_head head = {r->id, n, s->config.reply_bytes, r->hold_ns, mark_of(r->id), r->due};
    if (room < n)
        return -1;
    memcpy(out, &head, sizeof(head));
    memset(out + sizeof(head), 'e', n - sizeof(head));
    return n;
}

static int64_t read_echo(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                         bool end, uint32_t *worth, uint32_t *need)
{
    struct cl_sockload_head head;
    (void)end;
    *need = s->config.reply_bytes;
    if (n < sizeof(head))
        return 0;
    memcpy(&head, in, sizeof(head));
    if (head.id != r->id || head.mark != mark_of(r->id) || head.bytes != s->config.request_bytes)
        return -1;
    if (n < s->config.reply_bytes)
        return 0;
    bool whole = in[s->config.reply_bytes - 1] == 'e' || s->config.reply_bytes == sizeof(head);
    *worth = whole ? CL_SOCKLOAD_HIT : CL_SOCKLOAD_WRONG;
    return s->config.reply_bytes;
}

const struct cl_protocol cl_sockload_protocol_echo = {write_echo, read_echo};

static int64_t write_custom(const struct cl_sockload *s, const struct cl_request *r, uint8_t *out, uint64_t room)
{
    int64_t n = s->config.ask(r->id, out, (int64_t)room);
    return n > 0 && (uint64_t)n <= room ? n : -1;
}

static int64_t read_custom(const struct cl_sockload *s, const struct cl_request *r, const uint8_t *in, uint32_t n,
                           bool end, uint32_t *worth, uint32_t *need)
{
    int64_t took = s->config.answer(r->id, in, n);
    (void)end;
    *need = n + 1;
    *worth = CL_SOCKLOAD_HIT;
    return took < 0 || took > (int64_t)n ? -1 : took;
}

const struct cl_protocol cl_sockload_protocol_custom = {write_custom, read_custom};
