/* See netdev.h. rtnetlink(7). */
#include "netdev.h"

#include <errno.h>
#include <linux/if_link.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

int cl_netdev_open(void)
{
    int fd = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE);
    return fd < 0 ? -errno : fd;
}

/* The statistics among the attributes of a link. */
static int find_dropped(const char *reply, ssize_t n, uint64_t *dropped)
{
    int left = (int)n - (int)NLMSG_SPACE(sizeof(struct ifinfomsg));
    const struct rtattr *a = (const void *)(reply + NLMSG_SPACE(sizeof(struct ifinfomsg)));
    for (; RTA_OK(a, left); a = RTA_NEXT(a, left))
        if (a->rta_type == IFLA_STATS64 && RTA_PAYLOAD(a) >= sizeof(struct rtnl_link_stats64)) {
            struct rtnl_link_stats64 s;
            memcpy(&s, RTA_DATA(a), sizeof s);
            *dropped = s.tx_dropped;
            return 0;
        }
    return -ENODATA;
}

int cl_netdev_tx_dropped(int netlink, int ifindex, uint64_t *dropped)
{
    struct {
        struct nlmsghdr header;
        struct ifinfomsg info;
    } request = {{sizeof request, RTM_GETLINK, NLM_F_REQUEST, 1, 0}, {.ifi_index = ifindex}};
    char reply[8192] CL_ALIGNED(8);
    if (netlink < 0 || send(netlink, &request, sizeof request, 0) < 0)
        return netlink < 0 ? -EBADF : -errno;
    ssize_t n = recv(netlink, reply, sizeof reply, 0);
    const struct nlmsghdr *h = (const void *)reply;
    if (n < (ssize_t)NLMSG_SPACE(0))
        return n < 0 ? -errno : -EPROTO;
    if (h->nlmsg_type == NLMSG_ERROR && n >= (ssize_t)NLMSG_SPACE(sizeof(int))) {
        int code; /* struct nlmsgerr begins with it, negative as ours */
        memcpy(&code, NLMSG_DATA(h), sizeof code);
        return code;
    }
    if (h->nlmsg_type != RTM_NEWLINK || n < (ssize_t)NLMSG_SPACE(sizeof(struct ifinfomsg)))
        return -EPROTO;
    return find_dropped(reply, n, dropped);
}
