/* UDP echo: the payload is {sequence number, magic, pattern}; the answer must be the same bytes. The magic depends on
 * the seed, so that answers to another generator's requests are not taken for ours. Where requests say what a server is
 * to spend on them, that stands at the beginning of the pattern. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>

static uint32_t magic_of(const struct cl_loadgen *lg)
{
    return (uint32_t)(lg->config.seed * 0x9e3779b97f4a7c15ull >> 32) ^ 0x6f686365u;
}

int cl_echo_init(struct cl_loadgen *lg, char *err)
{
    uint32_t n = lg->config.payload_bytes;
    if (n < 8 || n > CL_LOAD_MTU - (CL_UDP_HEADERS - CL_ETH_HLEN)) {
        snprintf(err, 256, "payload_bytes must be from 8 to %u", CL_LOAD_MTU - 28);
        return -EINVAL;
    }
    const struct cl_loadgen_config *c = &lg->config;
    lg->echo.serves = c->service_ns || c->long_fraction > 0;
    if (lg->echo.serves && n < 16) {
        snprintf(err, 256, "payload_bytes must be 16 at least for requests that say what to spend on them");
        return -EINVAL;
    }
    lg->echo.service[0] = c->service_ns;
    lg->echo.service[CL_ITEM_LONG] = c->long_ns;
    if (c->long_fraction > 0 && !(lg->echo.items = malloc(CL_ITEMS)))
        return -ENOMEM;
    struct cl_random random = {c->seed ^ 0x676e6f6cu};
    for (uint32_t i = 0; lg->echo.items && i < CL_ITEMS; i++)
        lg->echo.items[i] = cl_random_unit(&random) <= c->long_fraction ? CL_ITEM_LONG : 0;
    lg->echo.expected = malloc(n);
    if (!lg->echo.expected)
        return -ENOMEM;
    cl_put32(lg->echo.expected, 0);
    cl_put32(lg->echo.expected + 4, magic_of(lg));
    for (uint32_t i = 8; i < n; i++)
        lg->echo.expected[i] = (uint8_t)(i * 131 + 7);
    lg->echo.payload_sum[CL_ITEM_GIVEN] = 0;
    if (lg->echo.serves) {
        memset(lg->echo.expected + CL_LOAD_SERVICE_AT, 0, 4);
        lg->echo.payload_sum[CL_ITEM_GIVEN] = cl_csum_add(0, lg->echo.expected, n);
    }
    for (int item = 1; item >= 0; item--) { /* the last one is what stays in it */
        if (lg->echo.serves)
            memcpy(lg->echo.expected + CL_LOAD_SERVICE_AT, &lg->echo.service[item], 4);
        lg->echo.payload_sum[item] = cl_csum_add(0, lg->echo.expected, n);
    }
    return cl_shape_build(lg, &lg->echo.request, lg->echo.expected, n);
}

void cl_echo_free(struct cl_loadgen *lg)
{
    cl_shape_free(&lg->echo.request);
    free(lg->echo.expected);
    free(lg->echo.items);
}

/* What a server is to spend on a request. */
static inline uint32_t service_of(const struct cl_loadgen *lg, uint32_t seq, uint32_t item)
{
    if (cl_unlikely(item == CL_ITEM_GIVEN))
        return lg->replay->service_ns[cl_replay_at(lg, seq)];
    return lg->echo.service[item];
}

CL_HOT void cl_echo_fill(struct cl_loadgen *lg, struct cl_frame *frame, uint32_t seq, uint32_t item)
{
    uint32_t flow = seq & lg->flow_mask, service = service_of(lg, seq, item);
    cl_shape_copy(&lg->echo.request, frame, flow);
    cl_put32(frame->data + CL_UDP_HEADERS, seq);
    if (cl_unlikely(item))
        memcpy(frame->data + CL_UDP_HEADERS + CL_LOAD_SERVICE_AT, &service, 4);
    if (cl_likely(lg->config.checksum)) {
        /* From sums taken beforehand: a load that spans stores just made would wait until they have left the core. */
        uint64_t given = item == CL_ITEM_GIVEN ? service : 0;
        uint16_t check = cl_csum_finish(lg->echo.request.sums[flow] + lg->echo.payload_sum[item] + seq + given);
        ((struct cl_udp_frame *)frame->data)->udp.check = check ? check : 0xffff;
    }
}

CL_HOT void cl_echo_take(struct cl_loadgen *lg, uint64_t now, const uint8_t *payload, uint32_t len, uint32_t flow)
{
    const uint8_t *expected = lg->echo.expected;
    if (cl_unlikely(len < 8 || cl_get32(payload + 4) != cl_get32(expected + 4))) {
        cl_count(&lg->other.foreign, 1);
        return;
    }
    uint32_t seq = cl_get32(payload);
    struct cl_slot *slot = cl_slot_of(lg, seq);
    uint32_t service = slot ? service_of(lg, seq, slot->item) : 0;
    uint32_t said = lg->echo.serves ? 4 : 0; /* bytes of the pattern that say what to spend */
    if (cl_unlikely(!slot)) {
        cl_count(&lg->other.stray, 1);
        return;
    }
    if (cl_unlikely(len != lg->config.payload_bytes || flow != (seq & lg->flow_mask) ||
                    memcmp(payload + 8 + said, expected + 8 + said, len - 8 - said) != 0 ||
                    (said && memcmp(payload + 8, &service, said) != 0))) {
        cl_count(&cl_settle(lg, now, slot)->counts.wrong, 1);
        return;
    }
    cl_answered(lg, now, slot);
}
