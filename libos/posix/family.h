/* Processes that were forked from one another: of those that have sockets from before the fork, one has the runtime at
 * a time, from its first call that needs one to its end. The others wait for that end: they serve what is Linux', and
 * nothing of ours. So a server's worker is followed by the next one; two of them do not share a NIC.
 *
 * Who has it holds a lock of a file that all of them have. Linux takes that back when the process ends, however it
 * does, and its children do not have it (fcntl(2), F_SETLK).
 *
 * One that was forked, and cannot make the runtime, tries again each second: if it ended, who forked it would start
 * another one in its place, and so on. */
#ifndef CORELANE_LIBOS_POSIX_FAMILY_H
#define CORELANE_LIBOS_POSIX_FAMILY_H

#include "posix.h"

struct cl_posix_object;
struct cl_runtime;

/* With the first socket: processes that are forked from now on are of the family. */
void cl_posix_family_begin(void);
/* This process has the runtime from now on. -EAGAIN: another one has it. One thread at a time. */
int cl_posix_family_claim(void);
/* It has not got it, after all: another one may, and this one tries again by time. */
void cl_posix_family_give_up(void);
/* Whether the first socket was another process's: this one was forked from that. */
bool cl_posix_family_is_forked(void);
/* As ppoll of n descriptors, while another process has it: 0 also if that one has ended; -ECANCELED. fds[n] and fds[n +
 * 1] are free for its end and for the thread's being cancelled. held: as of cl_posix_interrupted_begin. */
int cl_posix_family_sleep(struct pollfd *fds, nfds_t n, uint64_t deadline_ns, const sigset_t *mask,
                          struct cl_posix_object *held);
/* start.c: as cl_posix_start, by a call on `held` that may wait for that end. NULL: *rc is -EAGAIN, the time is over;
 * -EINTR,
 * -ECANCELED, -ENOMEM. */
struct cl_runtime *cl_posix_start_until(struct cl_posix_object *held, uint64_t deadline_ns, int *rc);

#endif
