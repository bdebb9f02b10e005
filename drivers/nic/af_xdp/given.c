/* A NIC for an XDP program that another process, or an earlier program of this one, has loaded and attached. */
#include "af_xdp.h"

#include "../../bpf/sys.h"

#include <stdio.h>
#include <string.h>

int cl_af_xdp_nic_given(const char *ifname, uint32_t n_queues, int xskmap_fd, struct cl_nic **out, char *err)
{
    struct cl_af_xdp_config c = {.socket = {.ifname = ifname,
                                            .rx_size = CL_AF_XDP_RING_SLOTS,
                                            .tx_size = CL_AF_XDP_RING_SLOTS,
                                            .fill_size = CL_AF_XDP_RING_SLOTS,
                                            .copy_mode = CL_XSK_AUTO,
                                            .need_wakeup = 1,
                                            .bind_deadline_ms = CL_AF_XDP_BIND_MS},
                                 .n_queues = n_queues,
                                 .n_buffers = n_queues * CL_AF_XDP_BUFFERS,
                                 .buffer_bytes = CL_AF_XDP_BUFFER_BYTES,
                                 .fill_target = CL_AF_XDP_FILL};
    struct cl_nic *nic;
    int rc = cl_af_xdp_nic_new(&c, &nic, err);
    for (uint32_t q = 0; q < n_queues && rc == 0; q++) {
        int fd = nic->ops->fd(nic, q);
        rc = cl_bpf_map_update(xskmap_fd, &q, &fd, 0);
        if (rc) {
            snprintf(err, CL_ERR_BYTES, "the XDP program of %s takes no socket for queue %u: %s", ifname, q,
                     strerror(-rc));
            cl_nic_close(nic);
        }
    }
    if (rc == 0)
        *out = nic;
    return rc;
}
