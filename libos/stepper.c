/* See corelane/libos/stepper.h. */
#include <corelane/libos/stepper.h>

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MOST_ROUNDS 1000000 /* at one instant, or in a row of instants at which nothing was done */

struct part {
    struct cl_stepped what;
    uint64_t next_ns; /* as it said last */
};

struct cl_stepper {
    uint64_t *now_ns;
    struct part *parts;
    unsigned n, room;
};

static int refuse(char *err, int rc, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return rc;
}

int cl_stepper_new(uint64_t *now_ns, struct cl_stepper **out)
{
    struct cl_stepper *s = calloc(1, sizeof *s);
    if (!s)
        return -ENOMEM;
    s->now_ns = now_ns;
    *out = s;
    return 0;
}

int cl_stepper_add(struct cl_stepper *s, const struct cl_stepped *part)
{
    if (s->n == s->room) {
        unsigned room = 2 * s->room + 4;
        struct part *more = realloc(s->parts, room * sizeof *more);
        if (!more)
            return -ENOMEM;
        s->parts = more;
        s->room = room;
    }
    s->parts[s->n++] = (struct part){*part, 0};
    return 0;
}

static unsigned step_runtime(void *arg)
{
    int done = cl_runtime_step(arg);
    return done > 0 ? (unsigned)done : 0;
}

static uint64_t next_of_runtime(void *arg)
{
    return cl_runtime_next_ns(arg);
}

int cl_stepper_add_runtime(struct cl_stepper *s, struct cl_runtime *rt, char err[256])
{
    const struct cl_clock *clock = cl_nic_clock(cl_runtime_nic(rt));
    if (clock->word != s->now_ns)
        return refuse(err, -EINVAL, "the runtime's NIC lives by another clock than the stepper; make it with this one");
    struct cl_stepped part = {step_runtime, next_of_runtime, rt};
    int rc = cl_runtime_begin_steps(rt, err);
    return rc ? rc : cl_stepper_add(s, &part);
}

void cl_stepper_remove(struct cl_stepper *s, const void *arg)
{
    unsigned kept = 0;
    for (unsigned i = 0; i < s->n; i++)
        if (s->parts[i].what.arg != arg)
            s->parts[kept++] = s->parts[i];
    s->n = kept;
}

/* Step each to its end, one after the other from the first that is due, until all the others of one that found
 * something have found nothing. One that is due may find nothing itself and move frames to others, as a link does: it
 * counts as one that found something. Returns whether any did; *endless: that does not end. */
static bool step_all(struct cl_stepper *s, uint64_t now, bool *endless)
{
    uint64_t found = 0;
    unsigned first = 0;
    while (first < s->n && s->parts[first].next_ns > now)
        first++;
    for (unsigned i = first < s->n ? first : 0, quiet = 0; quiet < s->n; i = i + 1 == s->n ? 0 : i + 1) {
        struct part *p = &s->parts[i];
        quiet = p->next_ns <= now ? 1 : quiet + 1;
        p->next_ns = UINT64_MAX;
        for (; p->what.step(p->what.arg); quiet = 1)
            if (++found > MOST_ROUNDS) {
                *endless = true;
                return true;
            }
    }
    return found;
}

static uint64_t next_of_all(struct cl_stepper *s)
{
    uint64_t next = UINT64_MAX;
    for (unsigned i = 0; i < s->n; i++) {
        struct part *p = &s->parts[i];
        p->next_ns = p->what.next_ns(p->what.arg);
        next = cl_min(next, p->next_ns);
    }
    return next;
}

int cl_stepper_run(struct cl_stepper *s, uint64_t until_ns, char err[256])
{
    unsigned still = 0; /* instants in a row at which something was due and nothing was done */
    if (cl_sched_self())
        return refuse(err, -EDEADLK, "a uthread cannot run the stepper that runs it");
    uint64_t now = cl_load_relaxed(s->now_ns);
    for (next_of_all(s); now <= until_ns;) {
        bool endless = false, found = step_all(s, now, &endless);
        if (endless)
            return refuse(err, -ELOOP,
                          "there is always something to do, so no time passes: let who polls sleep instead");
        uint64_t next = next_of_all(s);
        still = found || next > now ? 0 : still + 1;
        if (still == MOST_ROUNDS)
            return refuse(err, -ELOOP, "something is always due, and nothing is done about it");
        /* What is due and not done yet, as a frame for a NIC without room, is looked at again a moment later. */
        next = cl_max(next, now + 1);
        if (next > until_ns)
            break;
        now = next;
        cl_store_relaxed(s->now_ns, now);
    }
    cl_store_relaxed(s->now_ns, cl_max(now, until_ns));
    return 0;
}

void cl_stepper_delete(struct cl_stepper *s)
{
    if (s)
        free(s->parts);
    free(s);
}
