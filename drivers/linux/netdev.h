/* What Linux says of a network interface, asked of a netlink socket of the interface's own namespace, from any thread:
 * whether it is still there, and what it dropped. Not for hot paths. */
#ifndef CORELANE_DRIVERS_LINUX_NETDEV_H
#define CORELANE_DRIVERS_LINUX_NETDEV_H

#include <corelane/runtime/base.h>

/* A socket in the namespace of the calling thread. -errno. */
int cl_netdev_open(void);

/* The interface's count of frames that it had no room to send. 0, -ENODEV if there is no such interface, or -errno. */
int cl_netdev_tx_dropped(int netlink, int ifindex, uint64_t *dropped);

#endif
