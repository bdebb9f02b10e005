/* Commands from the controlling thread to the loops: a ring a loop, read at the start of a round. A loop takes pointers
 * in and out of its tables and allocates nothing. */
#include "../switch/members.h"

#include <errno.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void table_put(struct io_slot *table, uint64_t key, struct io_app *app)
{
    uint32_t i = io_slot_of(key);
    while (table[i].app)
        i = (i + 1) & (IO_TABLE - 1);
    table[i] = (struct io_slot){key, app};
}

/* Linear probing without tombstones: what follows in the cluster is put in anew. */
static void table_take(struct io_slot *table, const struct io_app *app)
{
    for (uint32_t i = 0; i < IO_TABLE; i++) {
        if (table[i].app != app)
            continue;
        table[i].app = NULL;
        for (uint32_t j = (i + 1) & (IO_TABLE - 1); table[j].app; j = (j + 1) & (IO_TABLE - 1)) {
            struct io_slot moved = table[j];
            table[j].app = NULL;
            table_put(table, moved.key, moved.app);
        }
        return;
    }
}

static void loop_add(struct io_loop *loop, struct io_app *app)
{
    table_put(loop->by_mac, app->mac, app);
    table_put(loop->by_ip, app->ip_be, app);
    if (app->loop != loop->index)
        return;
    loop->doorbells[loop->n_apps] = (struct io_doorbell){.rung = &app->doorbell->rung};
    loop->apps[loop->n_apps++] = app;
    if (app->group)
        io_member_add(app);
}

static void loop_remove(struct io_loop *loop, struct io_app *app)
{
    table_take(loop->by_mac, app);
    table_take(loop->by_ip, app);
    if (app->loop != loop->index)
        return;
    uint32_t at = 0, keep = 0;
    while (at < loop->n_apps && loop->apps[at] != app)
        at++;
    if (at == loop->n_apps)
        return; /* its IO_ADD never got here */
    if (app->cores.told)
        io_cores_remove(loop, app);
    if (app->group)
        io_member_remove(app);
    uint32_t behind = --loop->n_apps - at;
    memmove(&loop->apps[at], &loop->apps[at + 1], behind * sizeof loop->apps[0]);
    memmove(&loop->doorbells[at], &loop->doorbells[at + 1], behind * sizeof loop->doorbells[0]);
    loop->look_app = loop->look_kthread = 0;
    if (loop->next_app >= loop->n_apps)
        loop->next_app = 0;
    if (loop->active == app)
        loop->active = NULL;
    for (uint32_t i = 0; i < loop->n_touched; i++)
        if (loop->touched[i]->app != app)
            loop->touched[keep++] = loop->touched[i];
    loop->n_touched = keep;
    io_stamp_forget(loop, app);
    for (uint32_t u = 0; u < loop->n_uplinks; u++)
        for (uint32_t i = 0; i < loop->uplinks[u].n_staged; i++)
            if (loop->uplinks[u].owner[i] == app) {
                loop->uplinks[u].owner[i] = NULL;
                loop->uplinks[u].staged_other++;
            }
}

bool io_commands_pending(const struct io_loop *loop)
{
    return cl_ring_ready(&loop->commands);
}

void io_commands(struct io_loop *loop)
{
    struct cl_desc d;
    while (cl_unlikely(cl_ring_pop(&loop->commands, &d, 1) == 1)) {
        cl_ring_publish(&loop->commands);
        struct io_app *app = (struct io_app *)(uintptr_t)d.payload;
        if (d.word == IO_ADD)
            loop_add(loop, app);
        else if (d.word == IO_REMOVE)
            loop_remove(loop, app);
        else if (d.word == IO_THREADS)
            io_cores_add(loop, app);
        else if ((d.word & IO_STATE_MASK) == IO_STATE)
            io_member_say(app, (uint32_t)(d.word >> IO_STATE_SHIFT));
        else
            loop->cores.urgent = true; /* IO_POLICY: the next decision takes it */
        io_count(loop->stats.commands, 1);
        /* Release: what we last wrote to the application's fields is seen by whoever frees it. */
        cl_store_release(&loop->commands_done, loop->commands_done + 1);
    }
}

int io_tell_loop(struct cl_io *io, struct io_loop *loop, uint64_t kind, struct io_app *app, char *err)
{
    if (!io->running)
        io_commands(loop); /* what was under way when it stopped */
    if (!cl_ring_push(&loop->commands_tx, kind, (uint64_t)(uintptr_t)app)) {
        snprintf(err, IO_ERR_BYTES, "loop %u does not take commands: is its core taken away?", loop->index);
        return -EBUSY;
    }
    loop->commands_sent++;
    if (!io->running) {
        io_commands(loop);
        return 0;
    }
    uint64_t one = 1;
    ssize_t ignored = write(loop->event_fd, &one, sizeof one); /* EAGAIN: it is being woken anyway */
    (void)ignored;
    return 0;
}

int io_await_loops(struct cl_io *io, uint32_t wait_ms, char *err)
{
    const struct timespec nap = {0, 20000};
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        if (!io->running)
            io_commands(&io->loops[l]);
        for (uint64_t waited_us = 0; cl_load_acquire(&io->loops[l].commands_done) != io->loops[l].commands_sent;
             waited_us += 70) {
            if (waited_us >= wait_ms * 1000ull) {
                snprintf(err, IO_ERR_BYTES, "loop %u does not answer: is its core taken away?", l);
                return -ETIMEDOUT;
            }
            nanosleep(&nap, NULL);
        }
    }
    return 0;
}

int64_t cl_io_policy_set(struct cl_io *io, const struct cl_policy_setting *setting, char *err)
{
    int64_t ticket = -EINVAL;
    if (!io->config.manage_cores)
        return snprintf(err, IO_ERR_BYTES, "this iokernel does not manage cores"), -EINVAL;
    for (uint32_t l = 0; l < io->config.n_loops; l++) {
        ticket = cl_policy_host_set(io->loops[l].cores.host, setting, err);
        if (ticket < 0)
            return ticket;
        io_tell_loop(io, &io->loops[l], IO_POLICY, NULL, err); /* refused: it is taken at a later decision */
    }
    return ticket;
}

bool cl_io_policy_taken(struct cl_io *io, int64_t ticket)
{
    bool taken = io->config.manage_cores;
    for (uint32_t l = 0; taken && l < io->config.n_loops; l++)
        taken = cl_policy_host_taken(io->loops[l].cores.host, ticket);
    return taken;
}
