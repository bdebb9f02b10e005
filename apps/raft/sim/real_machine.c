/* The state machine of a simulated real node: registers, or the key-value store and registers that must say the
 * same. */
#include "real.h"
#include "../../kv/image.h"
#include <errno.h>
#include <string.h>

#define AGES_MS 5 /* so that reads often wait for the clock */

static void check_store(struct real *r, uint64_t index, int rc, const struct sim_outcome *store,
                        const struct sim_outcome *model)
{
    if (rc || store->value != model->value || store->refused != model->refused)
        sim_fail(r->world, "#%u's store answers entry %lu with %016lx%s (%d), and a register with %016lx%s",
                 r->owner->id, index, store->value, store->refused ? ", refused" : "", rc, model->value,
                 model->refused ? ", refused" : "");
}

static int64_t machine_apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                             uint8_t *reply, uint32_t room)
{
    struct real *r = arg;
    struct sim_command c;
    if (bytes != sizeof(c) || room < sizeof(struct sim_outcome))
        return -EINVAL;
    memcpy(&c, command, sizeof(c));
    struct sim_outcome out = sim_machine_apply(&r->machine, index, &c, true), model = out;
    uint64_t digest = r->machine.digest;
    if (real_has_store(r)) {
        int rc = sim_store_apply(&r->store, index, clock_ms, &c, &out);
        digest = sim_mix(digest ^ sim_store_digest(&r->store));
        check_store(r, index, rc, &out, &model);
    }
    sim_check_clock(r->world, r->owner, clock_ms);
    sim_check_applied(r->world, r->owner, index, sim_mix(digest + clock_ms)); /* of the log: the same everywhere */
    memcpy(reply, &out, sizeof(out));
    return (int64_t)sizeof(out) | (out.refused ? CL_RAFT_REFUSES : 0);
}

static int64_t machine_query(void *arg, uint64_t clock_ms, const uint8_t *query, uint32_t bytes, uint8_t *reply,
                             uint32_t room)
{
    struct real *r = arg;
    struct sim_command c;
    if (bytes != sizeof(c) || room < sizeof(struct sim_outcome))
        return -EINVAL;
    memcpy(&c, query, sizeof(c));
    struct sim_outcome out = sim_machine_execute(r->machine.registers, &c), model = out;
    if (real_has_store(r))
        check_store(r, r->machine.applied, sim_store_query(&r->store, clock_ms, &c, &out), &out, &model);
    memcpy(reply, &out, sizeof(out));
    return sizeof(out);
}

/* Of a snapshot: the store's image, if there is one, and then the model. */
static uint64_t image_bytes(const struct real *r)
{
    return real_has_store(r) ? (uint64_t)cl_kv_image_bytes(r->store.kv.store) : 0;
}

static int64_t machine_save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    struct real *r = arg;
    uint64_t image = image_bytes(r);
    if (!at && r->world->swarm.logless) /* it is kept at once, and what was before goes */
        sim_check_node(r->world, r->owner);
    if (at < image)
        return r->store.machine.save(r->store.machine.arg, at, out, room);
    uint64_t n = cl_min(room, image + sizeof(r->machine) - at);
    memcpy(out, (const uint8_t *)&r->machine + (at - image), n);
    return (int64_t)n;
}

int real_load(struct real *r, const struct cl_raft_machine *of, uint64_t at, const uint8_t *data, uint64_t bytes,
              uint64_t total)
{
    if (total < sizeof(r->machine) || at + bytes > total || (!of && total > sizeof(r->machine)))
        return -EINVAL;
    uint64_t image = total - sizeof(r->machine), first = at < image ? cl_min(bytes, image - at) : 0;
    int rc = first ? of->load(of->arg, at, data, first, image) : 0;
    if (rc)
        return rc;
    if (bytes > first)
        memcpy((uint8_t *)&r->machine + (at + first - image), data + first, bytes - first);
    if (at + bytes == total) {
        if (r->machine.salt_first != r->machine.salt_last)
            sim_fail(r->world, "#%u puts a snapshot together from those of #%lu and #%lu", r->owner->id,
                     r->machine.salt_first, r->machine.salt_last);
        sim_machine_salt(&r->machine, r->owner->id);
        r->owner->watch.applied = r->machine.applied;
        r->world->result->snapshots_installed += r->running; /* else it is its own, read back */
        r->owner->voted |= r->running;
    }
    return 0;
}

static int machine_load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    struct real *r = arg;
    return real_load(r, real_has_store(r) ? &r->store.machine : NULL, at, data, bytes, total);
}

static void machine_seed(void *arg, uint64_t word)
{
    struct real *r = arg;
    r->store.machine.seed(r->store.machine.arg, word);
}

struct cl_raft_machine real_machine(struct real *r)
{
    return (struct cl_raft_machine){.arg = r,
                                    .apply = machine_apply,
                                    .query = machine_query,
                                    .save = machine_save,
                                    .load = machine_load,
                                    .seed = real_has_store(r) ? machine_seed : NULL,
                                    .ages_ms = AGES_MS};
}
