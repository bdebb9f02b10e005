/* A state machine of the application, around whose calls the kthread says what it does: a stop that waits for one in
 * vain names it. */
#include "internal.h"

#include <corelane/libos/sched.h>

static int64_t apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *command, uint32_t bytes,
                     uint8_t *reply, uint32_t room)
{
    const struct serve_machine *m = arg;
    cl_uthread_doing(&m->doing[SERVE_APPLY]);
    int64_t n = m->real.apply(m->real.arg, index, clock_ms, command, bytes, reply, room);
    cl_uthread_doing(NULL);
    return n;
}

static int64_t query(void *arg, uint64_t clock_ms, const uint8_t *text, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    const struct serve_machine *m = arg;
    cl_uthread_doing(&m->doing[SERVE_QUERY]);
    int64_t n = m->real.query(m->real.arg, clock_ms, text, bytes, reply, room);
    cl_uthread_doing(NULL);
    return n;
}

static int64_t save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    const struct serve_machine *m = arg;
    cl_uthread_doing(&m->doing[SERVE_SAVE]);
    int64_t n = m->real.save(m->real.arg, at, out, room);
    cl_uthread_doing(NULL);
    return n;
}

static int load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    const struct serve_machine *m = arg;
    cl_uthread_doing(&m->doing[SERVE_LOAD]);
    int rc = m->real.load(m->real.arg, at, data, bytes, total);
    cl_uthread_doing(NULL);
    return rc;
}

static int64_t check(void *arg, const uint8_t *command, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    const struct serve_machine *m = arg;
    cl_uthread_doing(&m->doing[SERVE_CHECK]);
    int64_t n = m->real.check(m->real.arg, command, bytes, reply, room);
    cl_uthread_doing(NULL);
    return n;
}

static void seed(void *arg, uint64_t word)
{
    const struct serve_machine *m = arg;
    m->real.seed(m->real.arg, word);
}

static const char *why(void *arg)
{
    const struct serve_machine *m = arg;
    return m->real.why(m->real.arg);
}

void serve_machine_wrap(struct serve_machine *m, struct cl_raft_machine *machine)
{
    m->real = *machine;
    void *fns[] = {machine->apply, machine->query, machine->save, machine->load, machine->check};
    static const char *what[] = {"the state machine's apply", "the state machine's query", "the state machine's save",
                                 "the state machine's load", "the state machine's check"};
    for (int i = 0; i < SERVE_CALLS; i++)
        m->doing[i] = (struct cl_doing){.what = what[i], .fn = fns[i], .arg = machine->arg};
    machine->arg = m;
    machine->apply = apply;
    machine->query = query;
    machine->save = save;
    machine->load = load;
    machine->check = machine->check ? check : NULL;
    machine->seed = machine->seed ? seed : NULL;
    machine->why = machine->why ? why : NULL;
}
