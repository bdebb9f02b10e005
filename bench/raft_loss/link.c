/* See link.h. */
#include "link.h"
#include "../../drivers/random.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

bool loss_link_loses(uint64_t seed, uint64_t n, double loss)
{
    struct cl_random draw = {seed ^ n * 0xd1342543de82ef95ull};
    cl_random_next(&draw); /* neighbours differ in a few bits: mixed twice */
    return cl_random_unit(&draw) <= loss;
}

int loss_link_init(struct loss_link *l, uint64_t seed, uint64_t bits_per_s, uint64_t delay_ns)
{
    *l = (struct loss_link){.seed = seed, .ps_per_byte = 8000000000000ull / bits_per_s, .delay_ns = delay_ns};
    l->flying = malloc(LOSS_FLYING * sizeof(*l->flying));
    return l->flying ? 0 : -ENOMEM;
}

void loss_link_free(struct loss_link *l)
{
    free(l->flying);
}

void loss_link_begin(struct loss_link *l, double loss)
{
    l->loss = loss;
    l->number = l->lost = 0;
}

int64_t loss_link_send(struct loss_link *l, const uint8_t *data, uint32_t bytes, uint64_t now_ns)
{
    if (l->tail - l->head == LOSS_FLYING)
        return -ENOBUFS;
    l->free_ps = cl_max(l->free_ps, now_ns * 1000) + (bytes + LOSS_OVERHEAD_BYTES) * l->ps_per_byte;
    bool lost = loss_link_loses(l->seed, l->number, l->loss);
    if (l->number < l->n_fates)
        l->fates[l->number] = lost;
    l->number++;
    l->lost += lost;
    if (lost)
        return bytes;
    struct loss_datagram *d = &l->flying[l->tail++ % LOSS_FLYING];
    d->at_ns = l->free_ps / 1000 + l->delay_ns;
    d->bytes = bytes;
    memcpy(d->data, data, bytes);
    return bytes;
}

uint64_t loss_link_room_ns(const struct loss_link *l)
{
    uint64_t queue_ps = LOSS_NIC_QUEUE * (LOSS_DATAGRAM_BYTES + LOSS_OVERHEAD_BYTES) * l->ps_per_byte;
    return l->free_ps > queue_ps ? (l->free_ps - queue_ps + 999) / 1000 : 0;
}

uint64_t loss_link_next_ns(const struct loss_link *l)
{
    return l->head < l->tail ? l->flying[l->head % LOSS_FLYING].at_ns : UINT64_MAX;
}

const struct loss_datagram *loss_link_take(struct loss_link *l)
{
    return &l->flying[l->head++ % LOSS_FLYING];
}
