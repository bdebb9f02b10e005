/* Names of the reasons for drops. */
#include <corelane/libos/reasons.h>

static const char *const names[CL_DROP_REASONS] = {
    [CL_DROP_NONE] = "none",
    [CL_DROP_ETH_SHORT] = "eth_short",
    [CL_DROP_ETH_NOT_OURS] = "eth_not_ours",
    [CL_DROP_ETH_SOURCE] = "eth_source",
    [CL_DROP_ETH_TYPE] = "eth_type",
    [CL_DROP_ARP_MALFORMED] = "arp_malformed",
    [CL_DROP_ARP_NOT_OURS] = "arp_not_ours",
    [CL_DROP_ARP_UNSOLICITED] = "arp_unsolicited",
    [CL_DROP_ARP_CONFLICT] = "arp_conflict",
    [CL_DROP_IP_SHORT] = "ip_short",
    [CL_DROP_IP_VERSION] = "ip_version",
    [CL_DROP_IP_IHL] = "ip_ihl",
    [CL_DROP_IP_LENGTH] = "ip_length",
    [CL_DROP_IP_CHECKSUM] = "ip_checksum",
    [CL_DROP_IP_TTL] = "ip_ttl",
    [CL_DROP_IP_MARTIAN] = "ip_martian",
    [CL_DROP_IP_NOT_OURS] = "ip_not_ours",
    [CL_DROP_IP_FRAGMENT] = "ip_fragment",
    [CL_DROP_IP_REASSEMBLY] = "ip_reassembly",
    [CL_DROP_IP_PROTOCOL] = "ip_protocol",
    [CL_DROP_ICMP_SHORT] = "icmp_short",
    [CL_DROP_ICMP_CHECKSUM] = "icmp_checksum",
    [CL_DROP_ICMP_BROADCAST] = "icmp_broadcast",
    [CL_DROP_ICMP_ERROR] = "icmp_error",
    [CL_DROP_ICMP_TYPE] = "icmp_type",
    [CL_DROP_UDP_SHORT] = "udp_short",
    [CL_DROP_UDP_LENGTH] = "udp_length",
    [CL_DROP_UDP_CHECKSUM] = "udp_checksum",
    [CL_DROP_UDP_PORT_ZERO] = "udp_port_zero",
    [CL_DROP_UDP_NO_PORT] = "udp_no_port",
    [CL_DROP_UDP_QUEUE_FULL] = "udp_queue_full",
    [CL_DROP_UDP_NO_CHUNK] = "udp_no_chunk",
    [CL_DROP_TCP_SHORT] = "tcp_short",
    [CL_DROP_TCP_CHECKSUM] = "tcp_checksum",
    [CL_DROP_TCP_NO_PORT] = "tcp_no_port",
    [CL_DROP_TYPE_FULL] = "type_queue_full",
    [CL_DROP_FLOW_FULL] = "flow_queue_full",
    [CL_DROP_FLOW_TABLE] = "flow_table_full",
    [CL_DROP_FLOW_BUDGET] = "flow_budget",
    [CL_DROP_BATCH_FULL] = "batch_queue_full",
    [CL_DROP_BATCH_LATE] = "batch_late",
    [CL_DROP_NO_TX_BUFFER] = "no_tx_buffer",
    [CL_DROP_STOPPED] = "stopped",
};

const char *cl_drop_name(unsigned reason)
{
    return reason < CL_DROP_REASONS ? names[reason] : "?";
}
