/* Why a frame or datagram was dropped: one number a reason, one name a number, and the counters of one kthread.
 *
 * Balance, asserted by every test of the stack (tests/libos/net/test_input.py and others):
 *   rx_frames = delivered + answered + sum(dropped)          frames taken from the NIC, and looped ones (loop.c); those
 *                                                            that wait for a batch are none of these yet
 *   delivered = to handlers (handled) + to sockets + consumed by ARP (learned) + ICMP errors told to sockets
 *   delivered to handlers = handled + unhandled + frames in inboxes, queues by type and flows
 *   handled   = replied + unanswered + handler_errors + requests whose handler runs or is blocked
 * A transmit that could not be made is counted in tx_dropped_*, apart: it is ours, not received. */
#ifndef CORELANE_LIBOS_REASONS_H
#define CORELANE_LIBOS_REASONS_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
enum cl_drop {
    CL_DROP_NONE = 0,        /* not dropped */
    CL_DROP_ETH_SHORT,       /* shorter than an Ethernet header */
    CL_DROP_ETH_NOT_OURS,    /* unicast to another address, or a multicast group: none is ever joined */
    CL_DROP_ETH_SOURCE,      /* the source is a group address: an answer would go to many */
    CL_DROP_ETH_TYPE,        /* neither IPv4 nor ARP */
    CL_DROP_ARP_MALFORMED,   /* short, not IPv4 over Ethernet, impossible sender */
    CL_DROP_ARP_NOT_OURS,    /* asks for another host, and says nothing about one that we know */
    CL_DROP_ARP_UNSOLICITED, /* a reply to no question of ours */
    CL_DROP_ARP_CONFLICT,    /* somebody else claims our address (RFC 5227) */
    CL_DROP_IP_SHORT,        /* shorter than an IPv4 header */
    CL_DROP_IP_VERSION,      /* version is not 4 */
    CL_DROP_IP_IHL,          /* header length below 20 or beyond the frame */
    CL_DROP_IP_LENGTH,       /* total length below the header's, or beyond the frame */
    CL_DROP_IP_CHECKSUM,     /* header checksum is wrong */
    CL_DROP_IP_TTL,          /* TTL 0 on the wire */
    CL_DROP_IP_MARTIAN,      /* a source that no host may have (RFC 1122, section 3.2.1.3), or our own */
    CL_DROP_IP_NOT_OURS,     /* to another host: we do not forward */
    CL_DROP_IP_FRAGMENT,     /* a fragment behind the first: reassembly is not done */
    CL_DROP_IP_REASSEMBLY,   /* a first fragment, whose datagram would need reassembly */
    CL_DROP_IP_PROTOCOL,     /* neither UDP, TCP nor ICMP */
    CL_DROP_ICMP_SHORT,      /* shorter than 8 bytes */
    CL_DROP_ICMP_CHECKSUM,   /* checksum is wrong */
    CL_DROP_ICMP_BROADCAST,  /* echo to a broadcast address: not answered (RFC 1122, section 3.2.2.6) */
    CL_DROP_ICMP_ERROR,      /* an error message about nothing that an open, connected socket has sent */
    CL_DROP_ICMP_TYPE,       /* any other type: echo replies, timestamps, ... */
    CL_DROP_UDP_SHORT,       /* shorter than a UDP header */
    CL_DROP_UDP_LENGTH,      /* length field below 8 or beyond the packet */
    CL_DROP_UDP_CHECKSUM,    /* checksum present and wrong */
    CL_DROP_UDP_PORT_ZERO,   /* source or destination port 0 */
    CL_DROP_UDP_NO_PORT,     /* nobody listens */
    CL_DROP_UDP_QUEUE_FULL,  /* the socket's queue is full */
    CL_DROP_UDP_NO_CHUNK,    /* the application's memory of bytes is used up (Network memory_mib) */
    CL_DROP_TCP_SHORT,       /* shorter than its header, or than a TCP header is */
    CL_DROP_TCP_CHECKSUM,    /* checksum is wrong */
    CL_DROP_TCP_NO_PORT,     /* nobody listens: answered by a reset where one may be */
    CL_DROP_TYPE_FULL,       /* the queue of its type is full */
    CL_DROP_FLOW_FULL,       /* as many datagrams of its flow wait as may */
    CL_DROP_FLOW_TABLE,      /* its flow would be one more than may have something at one time */
    CL_DROP_FLOW_BUDGET,     /* as many datagrams of all flows wait as may */
    CL_DROP_BATCH_FULL,      /* as many requests wait to be handled together as may */
    CL_DROP_BATCH_LATE,      /* it waited to be handled with others, and could not be answered in time any more */
    CL_DROP_NO_TX_BUFFER,    /* an answer was due and no buffer was free */
    CL_DROP_STOPPED,         /* taken from the NIC, and the runtime was stopped before it was looked at */
    CL_DROP_REASONS          /* how many there are */
};

/* Counters of one kthread. Writer: that kthread; readers: anybody (relaxed: each is exact by itself). */
struct cl_net_stats {
    uint64_t rx_frames;
    uint64_t delivered;
    uint64_t answered;        /* ARP requests and ICMP echo requests that got an answer */
    uint64_t handed_on;       /* segments of no connection, left to other members of the group */
    uint64_t dropped[48];     /* by enum cl_drop */
    uint64_t handled;         /* datagrams given to handlers */
    uint64_t replied;         /* handlers that returned a reply */
    uint64_t unanswered;      /* handlers that returned 0 */
    uint64_t handler_errors;  /* handlers that returned an error, faulted, or wanted a reply that has no buffer */
    uint64_t handler_faults;  /* of these: a compiled handler went beyond its views, or raised */
    uint64_t extra_replies;   /* datagrams sent by cl_udp_reply_more */
    uint64_t stolen;          /* datagrams taken from a sibling's inbox or queue */
    uint64_t unhandled;       /* datagrams that still waited for a handler when the runtime was stopped */
    uint64_t to_sockets;      /* datagrams put into sockets' queues */
    uint64_t learned;         /* ARP messages taken in */
    uint64_t icmp_errors;     /* ICMP errors told to the sockets and connections that they are about */
    uint64_t looped;          /* frames to ourselves, taken in again; they are in rx_frames */
    uint64_t sent;            /* datagrams sent by cl_udp_sendto and cl_udp_send */
    uint64_t tx_frames;       /* frames that the NIC took */
    uint64_t tx_dropped_full; /* frames dropped since the NIC's queue stayed full */
    uint64_t tx_dropped_arp;  /* datagrams dropped since their next hop did not answer ARP */
    uint64_t tx_dropped_gone; /* frames dropped since the NIC was gone */
    uint64_t tx_dropped_loop; /* frames to ourselves dropped since as many wait as may */
    uint64_t icmp_unreachable_sent;
    uint64_t icmp_rate_limited;
    uint64_t tcp_resets_sent;
    uint64_t tcp_rate_limited; /* resets that were due and not sent */
    uint64_t tcp_segments;     /* segments given to connections */
    uint64_t arp_requests_sent;
    uint64_t arp_conflicts;
    uint64_t type_errors;     /* requests whose classifier named no type of the handler: they went to its last */
    uint64_t requeued;        /* requests put back into the queue of their type when their quantum was over */
    uint64_t requeue_full;    /* the same, but that was full: they waited in the run queue */
    uint64_t flows_stolen;    /* ready flows taken from a sibling */
    uint64_t batches;         /* of requests that had waited for each other (cl_udp_batching) */
    uint64_t batched;         /* requests in them */
    uint64_t flows_sent_home; /* flows that got ready here, and were handed to their home (cl_stream_set_home) */
};

/* Who holds memory of bytes (libos/net/chunk.h). */
#define CL_CHUNKS_UDP 0         /* datagrams that wait for readers of sockets */
#define CL_CHUNKS_TCP_SEND 1    /* bytes of connections that their peers have not acknowledged, and records of them */
#define CL_CHUNKS_TCP_RECEIVE 2 /* bytes that users have not read, and those that came out of order */
#define CL_CHUNKS_HOLDERS 3

/* What one of them has. */
struct cl_chunk_stats {
    uint64_t held_bytes;  /* at this moment */
    uint64_t taken;       /* chunks, ever */
    uint64_t refused;     /* times that the pool was used up */
    uint64_t bound_bytes; /* of all holders together */
};

/* Name of a reason, as in statistics: "udp_checksum". "?" beyond the last. */
CL_API const char *cl_drop_name(unsigned reason);
// cffi: end
_Static_assert(CL_DROP_REASONS <= 48, "dropped[] has room for every reason");

CL_EXTERN_C_END
#endif
