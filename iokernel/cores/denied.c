/* Denied: an application that is to go last, since it keeps others from memory that it was to give back
 * (docs/batch-memory.md). Who is, the controlling thread decides (iokernel/control/memory.py).
 *
 * It has what nobody else can use, as any that waits beside an idle core (allocate.c, share_idle), and gives that up as
 * soon as somebody else wants it: whatever its class, weight, guarantee or promise, the table says that it wants
 * nothing. But it must run to give memory back. So in the last TURN_NS of each PERIOD_NS the table says what is true,
 * and it competes as ever.
 *
 * Tests: tests/iokernel/cores/c/denied.c. */
#include "../state/internal.h"

#include <errno.h>

#define PERIOD_NS 40000000
#define TURN_NS 2000000 /* one in twenty; more than the turns that batch work takes on a core (cores.c, HOLD_BATCH) */

static bool has_turn(const struct io_loop *loop, const struct io_allotment *a, uint64_t now)
{
    return io_ns(loop->io, now - a->denied_since) % PERIOD_NS >= PERIOD_NS - TURN_NS;
}

static void tell(struct io_cores *c, const struct io_allotment *a, bool wants_nothing)
{
    struct cl_policy_app *row = &c->table[a->row];
    row->demand = wants_nothing ? 0 : a->demand;
    row->maximum = wants_nothing ? 0 : a->maximum;
    if (wants_nothing || !a->promise.kept) /* what is promised, promise.c has just told */
        row->guaranteed = wants_nothing ? 0 : a->guaranteed;
}

void io_denied_keep(struct io_loop *loop, uint64_t now)
{
    struct io_cores *c = &loop->cores;
    uint32_t denials = cl_load_acquire(&c->denials); /* acquire: of whom */
    if (cl_likely(!c->denied && denials == c->denials_seen))
        return;
    c->denied = false;
    c->denials_seen = denials;
    for (uint32_t i = 0; i < c->n_apps; i++) {
        struct io_allotment *a = &c->apps[i]->cores;
        bool denied = cl_load_relaxed(&a->denied);
        if (!denied && a->denied_since == 0)
            continue;
        if (a->denied_since == 0)
            a->denied_since = now;
        tell(c, a, denied && !has_turn(loop, a, now));
        a->denied_since = denied ? a->denied_since : 0;
        c->denied |= denied;
    }
}

int cl_io_app_deny(struct cl_io *io, uint32_t id, bool denied)
{
    struct io_app *app = io_app_by_id(io, id);
    if (!app)
        return -ENOENT;
    if (!io->config.manage_cores)
        return -EINVAL;
    uint32_t *denials = &io->loops[app->loop].cores.denials;
    cl_store_relaxed(&app->cores.denied, denied);            /* relaxed: the next one announces it */
    cl_store_release(denials, cl_load_relaxed(denials) + 1); /* release: after that */
    return 0;
}
