/* Taking connections from the queue of the control socket: those whose other end has gone are closed, a living one is
 * handed over.
 *
 * Who connects and closes again and again stands in the queue before others. So each of his connections costs a few
 * system calls, and nothing in Python.
 *
 * Not thread-safe for one listener. Tests: tests/iokernel/control/test_callers.py. */
#ifndef CORELANE_IOKERNEL_CONTROL_ACCEPT_H
#define CORELANE_IOKERNEL_CONTROL_ACCEPT_H

#include <corelane/runtime/base.h>

// cffi: begin
/* Connections of a user that came one after the other: some that had gone, then perhaps one that lives. */
struct cl_io_caller {
    int32_t fd;    /* of the living one, the reader's from now on: does not block, closed on exec; -1: there was none */
    uint32_t uid;  /* -1: the kernel did not say */
    uint32_t gone; /* how many had gone */
};

/* Take connections of `listener`, which does not block, up to the first living one, up to `most`, or until the n
 * `callers` are used up. Returns how many callers there are; only the last one may live. error: 0; or the positive
 * errno that ended it, EAGAIN if the queue is empty. drop: close those that had gone with whatever they have sent;
 * false: those that sent something are handed over as if they lived, for there may be descriptors in it. */
CL_API int cl_io_accept(int listener, bool drop, int most, struct cl_io_caller *callers, int n, int *error);
// cffi: end

#endif
