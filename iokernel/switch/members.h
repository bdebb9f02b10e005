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
 *                                           (CL_SHM_OWN_PORTS); the port leads back, without a table
 *   ARP, ICMP but echo requests             all members get a copy: an answer, or an error about somebody's packet. At
 *                                           most CL_IO_MAX_MEMBERS copies of a short frame
 *
 * Connections stay with the member that has them, though their slots are dealt anew. Of each slot is known who had it
 * before, and is there yet. Where that is somebody, a TCP segment asks (CL_RX_ASKS): the slot's member first, which
 * takes connections from then on; then those that had it, one after the other. Who knows nothing of the connection
 * sends the segment back as it came, and the next one is asked. When nobody knows it, the slot's member gets it again,
 * and is not asked: it resets it. So there is no table of flows, which strangers could fill: 2 bytes a slot, and for
 * each buffer that a member holds what was asked about it. The price is a hop more for each segment of a connection
 * that is older than the change, and that a member which hangs holds those up that asked it before. Segments that are
 * nobody's cost as many hops as a slot had members; each is of somebody's turn (switch.c). Daisy chaining: Olteanu and
 * others, Stateless Datacenter Load-balancing with Beamer, 2018.
 *
 * A member may send back only what it was asked about: source, addresses and ports are those that came.
 *
 * Threads. Which places are taken, the application's `place`: the controlling thread. All else: the home loop, which is
 * one and the same for all members. Tests: tests/iokernel/switch/c/members_model.c, connections_model.c,
 * tests/iokernel/switch/test_members.py. */
#ifndef CORELANE_IOKERNEL_SWITCH_MEMBERS_H
#define CORELANE_IOKERNEL_SWITCH_MEMBERS_H

#include "../state/internal.h"

#define IO_GROUP_SLOTS 256u

struct io_group {
    uint64_t key;                              /* of its hashes: nobody outside knows who gets what */
    struct io_app *members[CL_IO_MAX_MEMBERS]; /* by place; NULL: free */
    uint8_t slots[IO_GROUP_SLOTS];             /* place of the member that has it */
    uint16_t before[IO_GROUP_SLOTS];           /* places, a bit each, of members that had it before */
    uint32_t taken;                            /* places, a bit each */
};

/* What a member was asked about. The home loop's. */
struct io_asking {
    uint64_t from; /* source MAC; from bit 48 on, the members that were asked, a bit each */
    uint32_t from_be, ports;
};
_Static_assert(CL_IO_MAX_MEMBERS == 16, "a bit each, beside a MAC");

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
