/* The block device of a simulated real node: in memory, made bad by drivers/blk/fault.h.
 *
 * Drawn for the device: latency, writes and flushes that fail or find no space, reads that fail, bits that rot, and
 * what a crash leaves of writes that were not durable: all, nothing or pieces, of each by itself. Not drawn: writes
 * that are reported durable and are not (docs/raft-simulation.md says why). A node whose disk failed is silent until it
 * is started again and reads back what is there. */
#include "real.h"
#include "../../../drivers/blk/fault.h"
#include "../../../drivers/blk/memory.h"
#include "../../../libos/storage/log/disk.h"
#include <errno.h>
#include <string.h>

/* What the log sets apart for each of two snapshots. */
static uint64_t slot_bytes(const struct real *r)
{
    return (real_snapshot_bytes(r) + CL_LOG_PIECE_DATA - 1) / CL_LOG_PIECE_DATA * CL_LOG_PIECE_BYTES;
}

/* The node's disk as the seed drew it, or in the state that a fault put it in. */
static struct cl_blk_fault_config disk_config(struct real *r)
{
    const struct sim_swarm *s = &r->world->swarm;
    bool calm = r->world->calm;
    double error = calm ? 0 : (double)s->disk_error_ppm / 1e6;
    struct cl_blk_fault_config c = {
        .seed = sim_stream(r->world->options.seed, SIM_STREAMS + r->owner->slot),
        .write_error = r->bad == REAL_FAILS ? 1 : error,
        .flush_error = r->bad == REAL_FAILS ? 1 : error,
        .no_space = r->bad == REAL_FULL ? 1
                    : calm              ? 0
                                        : (double)s->no_space_ppm / 1e6,
        .read_error = error,
        .hang = r->hung,
        .survive = 0.5,
        .torn = s->torn ? 0.5 : 0,
        .latency_min_ns = s->write_ns / 2 + 1,
        .latency_max_ns = s->write_ns / 2 + s->write_spread_ns / 2 + 2,
        .clock = real_clock,
        .clock_arg = r,
    };
    if (r->slow) {
        c.latency_min_ns += 5 * SIM_MS;
        c.latency_max_ns += 20 * SIM_MS;
    }
    c.latency_min_ns += r->all_slow_ns;
    c.latency_max_ns += r->all_slow_ns;
    return c;
}

/* It without anything that goes wrong or takes time. */
static struct cl_blk_fault_config whole_config(struct real *r)
{
    struct cl_blk_fault_config c = disk_config(r);
    c.write_error = c.flush_error = c.read_error = c.no_space = 0;
    c.latency_min_ns = c.latency_max_ns = c.hang = 0;
    return c;
}

void real_set_disk(struct real *r)
{
    struct cl_blk_fault_config c = disk_config(r);
    char err[256];
    if (r->blk && cl_blk_fault_set(r->blk, &c, err))
        sim_fail(r->world, "#%u: %s", r->owner->id, err);
}

int real_new_disk(struct real *r)
{
    static const uint64_t sizes[] = {256 << 10, 320 << 10, 512 << 10};
    struct sim_world *w = r->world;
    uint64_t more = 2 * (slot_bytes(r) - CL_LOG_PIECE_BYTES); /* the sizes are those with slots of one piece */
    struct cl_blk_memory_config memory = {.bytes = sizes[w->swarm.disk_size % 3] + more, .depth = 64};
    struct cl_blk *inner = NULL;
    char err[256] = "no memory";
    struct cl_blk_fault_config whole = whole_config(r);
    struct cl_log_layout layout = {.area_id = whole.seed + r->owner->remade, .snapshot_bytes = real_snapshot_bytes(r)};
    int rc = cl_blk_memory_new(&memory, &inner, err);
    if (!rc) {
        rc = cl_blk_fault_new(inner, &whole, &r->blk, err);
        if (rc)
            cl_blk_close(inner);
    }
    if (!rc)
        rc = cl_log_format(r->blk, 0, &layout, err);
    if (rc)
        sim_fail(w, "#%u: cannot make a log: %s", r->owner->id, err);
    else
        real_set_disk(r);
    return rc;
}

void real_fail_disk(struct sim_world *w, struct sim_node *n)
{
    struct real *r = real_of(n);
    r->bad = cl_random_below(&w->random[SIM_R_DISK], 3) ? REAL_FAILS : REAL_FULL;
    r->hurt = true;
    w->result->full_disks += r->bad == REAL_FULL;
    real_set_disk(r);
}

void real_mend_disk(struct sim_world *w, struct sim_node *n)
{
    (void)w;
    real_of(n)->bad = REAL_GOOD;
    real_set_disk(real_of(n));
}

/* What recovery would find, without changing anything. */
static struct cl_log_report inspect(struct real *r)
{
    struct cl_log_config config = {.blk = r->blk, .on_damage = CL_LOG_READ_ONLY};
    struct cl_log_report report = {.tail = CL_LOG_TAIL_DAMAGED};
    struct cl_log *log;
    if (!cl_log_open_wait(&config, &log, &report, NULL))
        cl_log_close(log, NULL);
    return report;
}

/* A place to damage: in a superblock, a snapshot, or one of the blocks written last. Of blocks that hold little, near
 * the beginning: the rest is padding, which nobody reads. */
static uint64_t place(struct real *r, const struct cl_log_report *report)
{
    struct cl_random *random = &r->world->random[SIM_R_DISK];
    uint64_t ring = 2 * CL_LOG_BLOCK_BYTES + 2 * slot_bytes(r), end = report->last_offset;
    uint64_t blocks = cl_min((end - ring) / CL_LOG_BLOCK_BYTES, 12ul);
    uint64_t what = cl_random_below(random, 5);
    if (what == 0)
        return cl_random_below(random, 2) * CL_LOG_BLOCK_BYTES + cl_random_below(random, 512);
    if (what == 1)
        return 2 * CL_LOG_BLOCK_BYTES + cl_random_below(random, 2) * slot_bytes(r) + cl_random_below(random, 2000);
    if (end <= ring)
        return ring + cl_random_below(random, r->blk->bytes - ring);
    return end - CL_LOG_BLOCK_BYTES * (1 + cl_random_below(random, blocks)) + cl_random_below(random, 200);
}

/* Damage, or mend again: a bit flips, or, one time in eight, the sector cannot be read. */
static void flip(struct real *r, uint64_t at, unsigned bit, bool back)
{
    if (bit == 7) {
        if (cl_blk_fault_unreadable(r->blk, at, 1, !back))
            sim_fail(r->world, "#%u: cannot make a sector unreadable", r->owner->id);
        return;
    }
    _Alignas(CL_LOG_BLOCK_BYTES) uint8_t block[CL_LOG_BLOCK_BYTES];
    uint64_t offset = at & ~(uint64_t)(CL_LOG_BLOCK_BYTES - 1);
    int rc = cl_blk_read(r->blk, 0, offset, block, sizeof(block));
    if (rc == -EIO) /* another place of this rot */
        return;
    block[at - offset] ^= (uint8_t)(1u << bit);
    rc = rc ? rc : cl_blk_write(r->blk, 0, offset, block, sizeof(block), CL_BLK_DURABLE);
    if (rc)
        sim_fail(r->world, "#%u: cannot flip a bit: %d", r->owner->id, rc);
}

/* Whether nothing on the device can tell the damage from torn writes which were never acknowledged (docs/log.md): of
 * one place, if what it damaged was acknowledged so shortly before the crash that nothing durable said so yet; of more,
 * if what said so may be hit, too: the superblocks, and those of the lost flushes that were sent when the first was
 * acknowledged. */
static bool unknowable(const struct real *r, const struct cl_log_report *before, const struct cl_log_report *after,
                       unsigned places)
{
    uint64_t lost = before->last_flush - after->last_flush;
    if (after->tail == CL_LOG_TAIL_DAMAGED || lost == 0)
        return false;
    return places == 1 ? after->last_flush >= r->said : lost <= REAL_IN_FLIGHT + places - 1;
}

/* Bits flip or sectors become unreadable in up to three places, and are as before if nobody could know it. Without
 * power: what a killed process left in the cache would hide them. */
bool real_rot(struct sim_world *w, struct sim_node *n)
{
    struct real *r = real_of(n);
    uint64_t at[3];
    unsigned bits[3], places = 1 + (unsigned)cl_random_below(&w->random[SIM_R_DISK], 3);
    struct cl_blk_fault_config whole = whole_config(r);
    char err[256];
    if (!r->blk || cl_blk_fault_set(r->blk, &whole, err))
        return false;
    cl_blk_fault_crash(r->blk);
    struct cl_log_report before = inspect(r);
    for (unsigned i = 0; i < places; i++) {
        at[i] = place(r, &before);
        bits[i] = (unsigned)cl_random_below(&w->random[SIM_R_DISK], 8);
        flip(r, at[i], bits[i], false);
    }
    struct cl_log_report after = inspect(r);
    sim_say(w, "#%u: bits flip in %u places, %lu, %lu, %lu: %lu of %lu flushes are whole%s%s", n->id, places, at[0],
            places > 1 ? at[1] : 0, places > 2 ? at[2] : 0, after.flushes, before.flushes, *after.why ? ": " : "",
            after.why);
    bool back = unknowable(r, &before, &after, places);
    for (unsigned i = places; i && back; i--)
        flip(r, at[i - 1], bits[i - 1], true);
    return !back;
}
