/* See arp.h. */
#include "arp.h"

#include "../../../runtime/net.h"

void cl_load_arp_write(struct cl_frame *frame, const uint8_t *mac, uint16_t op, const uint8_t *to, uint32_t to_ip_be,
                       uint32_t own_ip_be)
{
    static const uint8_t broadcast[6] = {0xff, 0xff, 0xff, 0xff, 0xff, 0xff};
    struct cl_eth *eth = (struct cl_eth *)frame->data;
    struct cl_arp *arp = (struct cl_arp *)(eth + 1);
    memset(frame->data, 0, CL_ETH_MIN);
    memcpy(eth->dst, to ? to : broadcast, 6);
    memcpy(eth->src, mac, 6);
    eth->type_be = cl_be16(CL_ETHERTYPE_ARP);
    *arp = (struct cl_arp){.htype_be = cl_be16(1),
                           .ptype_be = cl_be16(CL_ETHERTYPE_IPV4),
                           .hlen = 6,
                           .plen = 4,
                           .op_be = cl_be16(op),
                           .sender_ip_be = own_ip_be,
                           .target_ip_be = to_ip_be};
    memcpy(arp->sender_mac, mac, 6);
    if (to)
        memcpy(arp->target_mac, to, 6);
    frame->len = CL_ETH_MIN;
}
