/* Having the device say what was acknowledged, so that damage to it is never taken for a write that a crash tore.
 *
 * A flush that is not whole was torn, or was whole, acknowledged and damaged since. Recovery can tell which only if
 * something durable says that the flush had been acknowledged. Each flush says so of those before it, so while appends
 * follow each other that costs nothing. What no flush says within confirm_ns a superblock does, which recovery believes
 * in any case: one write beside what is under way, and none holds back an append.
 *
 * The window that stays open: from the acknowledgement until that superblock is durable, at most twice confirm_ns (a
 * flush that is acknowledged while an earlier one is watched is watched next) and the time of one write. It cannot be
 * closed: the word for it has to be written after the flush is durable, and an acknowledgement that waited for that
 * would take two writes. */
#include "internal.h"

void cl_log_confirm_said(struct cl_log *log, uint64_t lsn)
{
    struct cl_log_confirm *c = &log->confirm;
    c->said_lsn = cl_max(c->said_lsn, lsn);
    if (c->said_lsn >= c->watch_lsn)
        c->at_ns = 0;
}

bool cl_log_confirm_step(struct cl_log *log)
{
    struct cl_log_confirm *c = &log->confirm;
    if (log->view.lsn <= c->said_lsn || c->at_ns == UINT64_MAX || log->config.confirm_ns == UINT64_MAX ||
        log->config.on_damage == CL_LOG_READ_ONLY || log->closing)
        return false;
    uint64_t now = cl_log_now_ns(log);
    if (c->at_ns == 0) {
        c->watch_lsn = log->view.lsn;
        c->at_ns = now + log->config.confirm_ns;
    }
    if (now < c->at_ns)
        return false;
    c->watch_lsn = log->view.lsn;
    c->at_ns = UINT64_MAX;
    log->stats.confirms++;
    cl_log_super_want(log, NULL);
    return true;
}

uint64_t cl_log_confirm_next_ns(const struct cl_log *log)
{
    return log->confirm.at_ns ? log->confirm.at_ns : UINT64_MAX;
}
