/* The ARP packets of load generators (RFC 826). */
#ifndef CORELANE_DRIVERS_NIC_LOADGEN_ARP_H
#define CORELANE_DRIVERS_NIC_LOADGEN_ARP_H

#include <corelane/drivers/nic.h>

/* Write one into a frame, from `mac` and own_ip_be. to: whose MAC address is known, else NULL. */
void cl_load_arp_write(struct cl_frame *frame, const uint8_t *mac, uint16_t op, const uint8_t *to, uint32_t to_ip_be,
                       uint32_t own_ip_be);

#endif
