/* NICs of one queue each as one NIC: queue q is that of the q-th. What comes in on one of them stays on its queue,
 * whatever its RSS hash says. So who joins generators of load (loadgen/loadgen.h) decides which queue gets which
 * requests, and when, and needs no thread for them: the thread that polls a queue makes its requests.
 *
 * A frame goes out by the NIC from which its destination's MAC address was last heard, whichever queue it is given to,
 * and by the one that its buffer belongs to if none has. Is that another one, it is copied into a buffer of the first.
 * So what a thief answers comes to who asked. A NIC may be another thread's: each has a lock, held for one call. `wait`
 * alone is not under it: a joined NIC must bear a wait beside other calls, as memory.h does. Of loadgen's, poll instead
 * of waiting.
 *
 * The NIC owns those that it joins: closing it closes them. Address and MAC are those of the first; counters are those
 * of each by its queue, so what is sent counts where it leaves.
 * Does not deal with: NICs of several queues, balancing.
 * Tests: tests/drivers/nic/test_joined.py and the common suite. */
#ifndef CORELANE_DRIVERS_NIC_JOINED_H
#define CORELANE_DRIVERS_NIC_JOINED_H

#include <corelane/drivers/nic.h>

// cffi: begin
/* Join n NICs (1..CL_NIC_MAX_QUEUES), which then belong to the new one. -errno with a reason in err[256]; they are then
 * untouched. */
CL_API int cl_joined_nic_new(struct cl_nic *const *nics, uint32_t n, struct cl_nic **out, char *err);
// cffi: end

#endif
