/* What is looked at before an AF_XDP NIC opens its sockets: its configuration and its interface. See af_xdp.h. */
#include "af_xdp.h"

#include "../../../runtime/net.h"

#include <errno.h>
#include <net/if.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

int cl_af_xdp_check(const struct cl_af_xdp_config *c, char *err)
{
    if (c->n_queues < 1 || c->n_queues > CL_NIC_MAX_QUEUES) {
        snprintf(err, CL_ERR_BYTES, "%u queues: from 1 to %d are possible", c->n_queues, CL_NIC_MAX_QUEUES);
        return -EINVAL;
    }
    uint32_t need = c->n_queues * (c->fill_target + CL_NIC_BURST);
    if (c->fill_target < 1 || c->fill_target > c->socket.fill_size || c->n_buffers < need) {
        snprintf(err, CL_ERR_BYTES,
                 "%u buffers for %u queues that keep %u in fill rings of %u: at least %u buffers are needed, and a "
                 "fill ring no shorter than what it keeps",
                 c->n_buffers, c->n_queues, c->fill_target, c->socket.fill_size, need);
        return -EINVAL;
    }
    return 0;
}

int cl_af_xdp_read_interface(struct cl_nic *nic, const struct cl_af_xdp_config *c, char *err)
{
    const char *ifname = c->socket.ifname;
    struct ifreq request = {0};
    snprintf(request.ifr_name, sizeof request.ifr_name, "%s", ifname);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    int r = fd < 0 || ioctl(fd, SIOCGIFMTU, &request) ? -errno : 0;
    if (!r)
        nic->mtu = (uint32_t)request.ifr_mtu;
    if (!r && ioctl(fd, SIOCGIFHWADDR, &request))
        r = -errno;
    if (!r)
        memcpy(nic->mac, request.ifr_hwaddr.sa_data, 6);
    if (fd >= 0)
        close(fd);
    if (r) {
        snprintf(err, CL_ERR_BYTES, "interface %s: %s (see `ip link` in this network namespace)", ifname, strerror(-r));
        return r;
    }
    uint32_t most = c->buffer_bytes - CL_XSK_HEADROOM - CL_ETH_HLEN;
    if (nic->mtu > most) {
        snprintf(err, CL_ERR_BYTES,
                 "interface %s has MTU %u, and a frame of %u bytes holds %u: `ip link set %s mtu %u`%s", ifname,
                 nic->mtu, c->buffer_bytes, most, ifname, most,
                 c->buffer_bytes < 4096 ? ", or use frames of 4096" : "");
        return -EMSGSIZE;
    }
    return 0;
}
