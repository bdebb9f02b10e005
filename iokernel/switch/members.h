/* Members of a group: applications under one name, MAC and IPv4 address. Which of them a frame is for.
 *
 * A flow's keyed hash chooses one of IO_GROUP_SLOTS slots; a slot belongs to one of the members that are willing, by
 * rendezvous (the highest hash of slot and member wins, Thaler and Ravishankar 1998). So one that comes takes its part
 * of the slots, evenly from all, and of one that goes only its own slots get another: no other flow moves.
 *
 * Willing are those of the best rank that there is: ready; ready once and draining; not ready yet; draining without
 * having been ready. So a frame is never lost for want of one that said that it is ready: who is alone gets all.
 *
 * What no flow leads to the right one:
 *   answers to what a member began itself   members choose ports of their own from a range of their own
 *                                           (io_member_ports); the port leads back, without a table
 *   ARP, ICMP but echo requests             all members get a copy: an answer, or an error about somebody's packet. At
 *                                           most IO_GROUP_MEMBERS copies of a short frame
 *
 * Threads. Which places are taken, the application's `place`: the controlling thread. All else: the home loop, which is
 * one and the same for all members. Tests: tests/iokernel/switch/c/members.c, tests/iokernel/switch/test_members.py. */
#ifndef CORELANE_IOKERNEL_SWITCH_MEMBERS_H
#define CORELANE_IOKERNEL_SWITCH_MEMBERS_H

#include "../state/internal.h"

#define IO_GROUP_SLOTS 256u

struct io_group {
    uint64_t key;                              /* of its hashes: nobody outside knows who gets what */
    struct io_app *members[CL_IO_MAX_MEMBERS]; /* by place; NULL: free */
    uint8_t slots[IO_GROUP_SLOTS];             /* place of the member that has it */
    uint32_t taken;                            /* places, a bit each */
};

/* The controlling thread's: the group of an application that is about to be added, with a place in it. `config` says
 * that it has members. 0, or -errno with a reason: -ENOSPC, all places are taken. -ENOMEM. -EINVAL: another loop's. */
int io_group_enter(struct cl_io *io, struct io_app *app, const struct cl_io_app_config *config, char *err);
/* And it has gone; the group goes with the last. */
void io_group_leave(struct io_app *app);

/* The home loop's, as commands say. */
void io_member_add(struct io_app *app);
void io_member_remove(struct io_app *app);
void io_member_say(struct io_app *app, uint32_t state);

#endif
