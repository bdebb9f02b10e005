/* Managed cores as the controlling thread sees them: the questions that it may ask. docs/cores.md is the protocol. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>

int cl_io_app_threads(struct cl_io *io, uint32_t app, int32_t pid, const int32_t *tids, uint32_t n, int32_t signal,
                      char *err)
{
    (void)io, (void)app, (void)pid, (void)tids, (void)n, (void)signal;
    return snprintf(err, IO_ERR_BYTES, "this iokernel does not manage cores"), -EINVAL;
}

int64_t cl_io_policy_set(struct cl_io *io, const struct cl_policy_setting *setting, char *err)
{
    (void)io, (void)setting;
    return snprintf(err, IO_ERR_BYTES, "this iokernel does not manage cores"), -EINVAL;
}

bool cl_io_policy_taken(struct cl_io *io, int64_t ticket)
{
    (void)io, (void)ticket;
    return false;
}

struct cl_policy_host *cl_io_policy_host(struct cl_io *io, uint32_t loop)
{
    (void)io, (void)loop;
    return NULL;
}

int cl_io_app_cores(const struct cl_io *io, uint32_t app, struct cl_io_app_cores *out)
{
    (void)io, (void)app, (void)out;
    return -ENOENT;
}

int cl_io_cores_stats(const struct cl_io *io, uint32_t loop, struct cl_io_cores_stats *out)
{
    (void)io, (void)loop, (void)out;
    return -ENOENT;
}

int cl_io_core_stats(const struct cl_io *io, uint32_t index, struct cl_io_core_stats *out)
{
    (void)io, (void)index, (void)out;
    return -ENOENT;
}

const struct cl_hist *cl_io_detection(const struct cl_io *io, uint32_t app)
{
    (void)io, (void)app;
    return NULL;
}

const struct cl_hist *cl_io_actuation(const struct cl_io *io, uint32_t loop, uint32_t step)
{
    (void)io, (void)loop, (void)step;
    return NULL;
}

const struct cl_hist *cl_io_decision_time(const struct cl_io *io, uint32_t loop)
{
    (void)io, (void)loop;
    return NULL;
}

uint32_t cl_io_moves(struct cl_io *io, uint32_t loop, uint64_t *next, struct cl_io_move *out, uint32_t n,
                     uint64_t *lost)
{
    (void)io, (void)loop, (void)next, (void)out, (void)n, (void)lost;
    return 0;
}
