/* When frames that applications trace pass: out of a tx ring, and on to where they are sent.
 *
 * A descriptor with CL_TX_STAMP asks for two stamps (runtime/shm.h). The first is taken when its ring was emptied as
 * far as the turn goes, one for all; the second when the round has given to the NICs what it collected, or later, when
 * they have taken what was collected until then: frames leave in order. Who does not trace pays for a look at a bit.
 *
 * Nothing is believed. Where stamps go follows from our own counts. Who asks for more than there is room for overwrites
 * his own, and a round writes no more of them than that. */
#include "../state/internal.h"

#define MASK (CL_SHM_TX_STAMPS - 1)
#define AHEAD (CL_CACHELINE / sizeof(struct cl_arena_tx_stamp))
_Static_assert((CL_SHM_TX_STAMPS & MASK) == 0, "a power of two");

static inline uint64_t stamp(const struct io_loop *loop)
{
    return loop->io->config.tsc_hz ? loop->now : cl_tsc(); /* a clock of the caller's */
}

void io_stamp_taken(struct io_loop *loop, struct io_kthread *k, uint32_t n)
{
    uint64_t now = stamp(loop);
    uint32_t first = k->stamped + n - cl_min(n, (uint32_t)CL_SHM_TX_STAMPS);
    k->stamped += n;
    for (uint32_t i = first; i != k->stamped; i++)
        cl_store_relaxed(&k->lines->tx_stamps[i & MASK].taken, now);
    /* Take the next line from the kthread that has read it, before a store to it holds up those behind it. */
    cl_prefetch_write(&k->lines->tx_stamps[(k->stamped + AHEAD) & MASK]);
    if (!k->stamping) {
        k->stamping = true;
        k->next_stamping = loop->stamping;
        loop->stamping = k;
    }
}

/* Those of k before `until` were given on. */
static void tell(struct io_kthread *k, uint32_t until, uint64_t now)
{
    uint32_t n = cl_min(until - k->told, (uint32_t)CL_SHM_TX_STAMPS);
    for (uint32_t i = until - n; i != until; i++)
        cl_store_relaxed(&k->lines->tx_stamps[i & MASK].given, now);
    k->told = until;
    cl_store_release(&k->lines->tx_stamped, until); /* release: the stamps */
}

/* Whether all that was taken is told. sent: frames that the loop has sent, ever, or dropped as their device is gone;
 * staged: that wait to be sent. */
static bool is_told(struct io_kthread *k, uint64_t sent, uint32_t staged, uint64_t now)
{
    for (;;) {
        if (k->staging == k->told) {
            if (k->told == k->stamped)
                return true;
            k->staging = k->stamped;
            k->sent_by = sent + staged;
        }
        if ((int64_t)(sent - k->sent_by) < 0)
            return false;
        tell(k, k->staging, now);
    }
}

CL_NOINLINE void io_stamp_given(struct io_loop *loop)
{
    uint64_t now = stamp(loop), sent = loop->stats.out_sent + loop->stats.out_dropped_no_uplink;
    uint32_t staged = 0;
    for (uint32_t u = 0; u < loop->n_uplinks; u++)
        staged += loop->uplinks[u].n_staged;
    for (struct io_kthread **at = &loop->stamping, *k = *at; k; k = *at) {
        if (is_told(k, sent, staged, now)) {
            k->stamping = false;
            *at = k->next_stamping;
        } else {
            at = &k->next_stamping;
        }
    }
}

void io_stamp_forget(struct io_loop *loop, const struct io_app *app)
{
    for (struct io_kthread **at = &loop->stamping, *k = *at; k; k = *at) {
        if (k->app == app)
            *at = k->next_stamping;
        else
            at = &k->next_stamping;
    }
}
