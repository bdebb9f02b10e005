/* What frames look like on the wire: header layouts, byte order, the Internet checksum and the RSS hash.
 *
 * Shared by every floor that builds or reads frames (drivers, iokernel, libos). Everything is inline; net.c only gives
 * the bindings and the tests something to call. Headers are overlaid on frame bytes at any alignment, hence packed;
 * fields named *_be are in network byte order.
 *
 * Implemented: Ethernet II (IEEE 802.3 clause 3), ARP for IPv4 over Ethernet (RFC 826), IPv4 (RFC 791), ICMP echo
 * (RFC 792), UDP (RFC 768), checksum (RFC 1071) with incremental update (RFC 1624).
 * Not here: VLAN tags, IPv6, TCP (libos/net), anything with state.
 *
 * Tests: tests/runtime/test_net.py (checksums against RFC 1071's definition, hash spread, header sizes). */
#ifndef CORELANE_RUNTIME_NET_H
#define CORELANE_RUNTIME_NET_H

#include <corelane/runtime/base.h>
#include <string.h>

// cffi: begin
#define CL_ETH_HLEN 14
#define CL_ETH_MIN 60 /* shortest frame on a wire, without FCS; software NICs carry shorter ones */
#define CL_ETHERTYPE_IPV4 0x0800
#define CL_ETHERTYPE_ARP 0x0806
#define CL_IPV4_HLEN 20 /* without options */
#define CL_IPPROTO_ICMP 1
#define CL_IPPROTO_TCP 6
#define CL_IPPROTO_UDP 17
#define CL_IPV4_DF 0x4000
#define CL_IPV4_MF 0x2000
#define CL_IPV4_OFFSET_MASK 0x1fff
#define CL_UDP_HLEN 8
#define CL_UDP_HEADERS 42 /* Ethernet + IPv4 without options + UDP */
#define CL_ARP_REQUEST 1
#define CL_ARP_REPLY 2
#define CL_ICMP_ECHO_REPLY 0
#define CL_ICMP_ECHO 8
// cffi: end

#define CL_PACKED __attribute__((packed))

struct cl_eth {
    uint8_t dst[6], src[6];
    uint16_t type_be;
} CL_PACKED;

struct cl_arp {
    uint16_t htype_be, ptype_be;
    uint8_t hlen, plen;
    uint16_t op_be;
    uint8_t sender_mac[6];
    uint32_t sender_ip_be;
    uint8_t target_mac[6];
    uint32_t target_ip_be;
} CL_PACKED;

struct cl_ipv4 {
    uint8_t version_ihl; /* 0x45 without options */
    uint8_t tos;
    uint16_t total_len_be;
    uint16_t id_be;
    uint16_t frag_be; /* flags and fragment offset in units of 8 bytes */
    uint8_t ttl;
    uint8_t proto;
    uint16_t check;
    uint32_t src_be, dst_be;
} CL_PACKED;

struct cl_icmp {
    uint8_t type, code;
    uint16_t check;
    uint16_t id_be, seq_be;
} CL_PACKED;

struct cl_udp {
    uint16_t src_port_be, dst_port_be;
    uint16_t len_be;
    uint16_t check; /* 0: not computed */
} CL_PACKED;

/* The headers of nearly every frame, as one overlay. */
struct cl_udp_frame {
    struct cl_eth eth;
    struct cl_ipv4 ip;
    struct cl_udp udp;
    uint8_t payload[];
} CL_PACKED;

_Static_assert(sizeof(struct cl_eth) == CL_ETH_HLEN, "Ethernet II");
_Static_assert(sizeof(struct cl_arp) == 28, "RFC 826");
_Static_assert(sizeof(struct cl_ipv4) == CL_IPV4_HLEN, "RFC 791");
_Static_assert(sizeof(struct cl_icmp) == 8, "RFC 792");
_Static_assert(sizeof(struct cl_udp) == CL_UDP_HLEN, "RFC 768");
_Static_assert(sizeof(struct cl_udp_frame) == CL_UDP_HEADERS, "the frame is its headers and the payload");

#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
#define cl_be16(x) ((uint16_t)__builtin_bswap16((uint16_t)(x)))
#define cl_be32(x) __builtin_bswap32((uint32_t)(x))
#define cl_be64(x) __builtin_bswap64((uint64_t)(x))
#else
#define cl_be16(x) ((uint16_t)(x))
#define cl_be32(x) ((uint32_t)(x))
#define cl_be64(x) ((uint64_t)(x))
#endif

/* Loads and stores at any alignment, host order. */
static inline uint16_t cl_get16(const void *p)
{
    uint16_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint32_t cl_get32(const void *p)
{
    uint32_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline uint64_t cl_get64(const void *p)
{
    uint64_t v;
    memcpy(&v, p, sizeof v);
    return v;
}

static inline void cl_put16(void *p, uint16_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void cl_put32(void *p, uint32_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline void cl_put64(void *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

static inline bool cl_mac_equal(const uint8_t *a, const uint8_t *b)
{
    return ((cl_get32(a) ^ cl_get32(b)) | (uint32_t)(cl_get16(a + 4) ^ cl_get16(b + 4))) == 0;
}

/* Group bit: broadcast and multicast addresses. */
static inline bool cl_mac_is_group(const uint8_t *mac)
{
    return mac[0] & 1;
}

static inline bool cl_mac_is_broadcast(const uint8_t *mac)
{
    return cl_get32(mac) == 0xffffffffu && cl_get16(mac + 4) == 0xffffu;
}

/* Checksum (RFC 1071). A partial sum is a 64-bit ones' complement sum of the bytes as 16-bit words *in memory order*
 * (section 2 (B): the sum is byte-order independent), so that adding words, halves and single bytes of 64-bit loads all
 * agree once folded. Partial sums may be added to each other with `+` as long as fewer than 2^16 are added.
 * Only the last part of a message may have an odd length. */

/* a + b with the carry added at the low end, which is the same once folded (RFC 1071, section 2 (A)). An addition and
 * one of the carry, as compilers know. */
static inline uint64_t cl_csum_carry(uint64_t a, uint64_t b)
{
    a += b;
    return a + (a < b);
}

/* Halves of a 64-bit word as a partial sum. */
static inline uint64_t cl_csum_halves(uint64_t v)
{
    return (v & 0xffffffffu) + (v >> 32);
}

/* Sum of n bytes, of any number. */
static inline uint64_t cl_csum_add(uint64_t sum, const void *data, size_t n)
{
    const uint8_t *p = (const uint8_t *)data;
    uint64_t even = 0, odd = 0; /* two chains: the loads, not the additions, bound the loop */
    for (; n >= 32; n -= 32, p += 32) {
        even = cl_csum_carry(cl_csum_carry(even, cl_get64(p)), cl_get64(p + 16));
        odd = cl_csum_carry(cl_csum_carry(odd, cl_get64(p + 8)), cl_get64(p + 24));
    }
    for (; n >= 8; n -= 8, p += 8)
        even = cl_csum_carry(even, cl_get64(p));
    sum += cl_csum_halves(even) + cl_csum_halves(odd);
    if (n & 4) {
        sum += cl_get32(p);
        p += 4;
    }
    if (n & 2) {
        sum += cl_get16(p);
        p += 2;
    }
    if (n & 1) { /* padded with a zero byte at the end (RFC 1071, section 4.1) */
        uint8_t last[2] = {*p, 0};
        sum += cl_get16(last);
    }
    return sum;
}

/* The 16-bit checksum field, as it lies in memory, of a partial sum: folded and complemented. */
static inline uint16_t cl_csum_finish(uint64_t sum)
{
    /* A word plus itself with its halves exchanged has the sum of both in its upper half, the carry included. */
    uint32_t half = (uint32_t)((sum + (sum << 32 | sum >> 32)) >> 32);
    return (uint16_t) ~((half + (half << 16 | half >> 16)) >> 16);
}

/* Checksum field of n bytes whose own checksum field is zero; 0 if the field is right in place. */
static inline uint16_t cl_csum(const void *data, size_t n)
{
    return cl_csum_finish(cl_csum_add(0, data, n));
}

/* Field `check` after the 16-bit word `was` became `is` (all as in memory). RFC 1624, equation 3: HC' = ~(~HC + ~m +
 * m'). */
static inline uint16_t cl_csum_update16(uint16_t check, uint16_t was, uint16_t is)
{
    return cl_csum_finish((uint64_t)(uint16_t)~check + (uint16_t)~was + is);
}

static inline uint16_t cl_csum_update32(uint16_t check, uint32_t was, uint32_t is)
{
    return cl_csum_finish((uint64_t)(uint16_t)~check + (uint32_t)~was + is);
}

/* Partial sum of the pseudo-header of UDP and TCP (RFC 768; RFC 9293, section 3.1). Addresses as in memory. */
static inline uint64_t cl_csum_pseudo(uint32_t src_be, uint32_t dst_be, uint8_t proto, uint16_t len)
{
    return (uint64_t)src_be + dst_be + cl_be16(proto) + cl_be16(len);
}

/* Checksum field of a UDP datagram (header with check = 0, and payload). A computed 0 is sent as all ones (RFC 768). */
static inline uint16_t cl_udp_checksum(uint32_t src_be, uint32_t dst_be, const void *udp, uint16_t len)
{
    uint16_t check = cl_csum_finish(cl_csum_add(cl_csum_pseudo(src_be, dst_be, CL_IPPROTO_UDP, len), udp, len));
    return check ? check : 0xffff;
}

/* Whether a received datagram's checksum is right or absent. */
static inline bool cl_udp_checksum_ok(uint32_t src_be, uint32_t dst_be, const struct cl_udp *udp, uint16_t len)
{
    return udp->check == 0 ||
           cl_csum_finish(cl_csum_add(cl_csum_pseudo(src_be, dst_be, CL_IPPROTO_UDP, len), udp, len)) == 0;
}

/* RSS. Where a NIC would use Toeplitz, one 64x64 multiplication mixes addresses and ports better for a fraction of the
 * cost; nothing in corelane needs the hash of a particular hardware. It is not a defence: a peer that knows the key can
 * aim at one queue, as it can with Toeplitz. 0 is kept for "no hash". */
#define CL_RSS_KEY 0x9e3779b97f4a7c15ull

static inline uint32_t cl_rss_mix(uint64_t key, uint64_t addresses, uint64_t ports)
{
    unsigned __int128 m = (unsigned __int128)(addresses ^ key) * (ports ^ 0xd6e8feb86659fd93ull);
    uint64_t x = (uint64_t)m ^ (uint64_t)(m >> 64);
    x *= 0xff51afd7ed558ccdull; /* one more round: low-entropy ports must reach the top bits, which choose the queue */
    uint32_t h = (uint32_t)(x >> 32);
    return h ? h : 1;
}

/* Hash of a flow. Addresses and ports in network byte order; ports 0 for what has none. */
static inline uint32_t cl_rss_hash(uint64_t key, uint32_t src_be, uint32_t dst_be, uint16_t src_port_be,
                                   uint16_t dst_port_be, uint8_t proto)
{
    return cl_rss_mix(key, src_be | (uint64_t)dst_be << 32,
                      src_port_be | (uint64_t)dst_port_be << 16 | (uint64_t)proto << 32);
}

/* Hash of a frame: addresses, protocol and ports of an unfragmented IPv4 UDP or TCP packet; addresses and protocol of
 * other IPv4, so that all fragments of a datagram meet; 0 for what is not IPv4 or is truncated. */
static inline uint32_t cl_rss_frame(uint64_t key, const uint8_t *frame, unsigned len)
{
    if (len < CL_ETH_HLEN + CL_IPV4_HLEN || cl_get16(frame + 12) != cl_be16(CL_ETHERTYPE_IPV4))
        return 0;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    unsigned l4 = CL_ETH_HLEN + (ip->version_ihl & 15) * 4u;
    uint16_t src_port = 0, dst_port = 0;
    bool whole = (ip->frag_be & cl_be16(CL_IPV4_MF | CL_IPV4_OFFSET_MASK)) == 0;
    if (whole && (ip->proto == CL_IPPROTO_UDP || ip->proto == CL_IPPROTO_TCP) && l4 + 4 <= len) {
        src_port = cl_get16(frame + l4);
        dst_port = cl_get16(frame + l4 + 2);
    }
    return cl_rss_hash(key, ip->src_be, ip->dst_be, src_port, dst_port, ip->proto);
}

/* Queue 0..n-1 of a hash, without a division: the top bits scaled. */
static inline unsigned cl_rss_queue(uint32_t hash, unsigned n)
{
    return (unsigned)(((uint64_t)hash * n) >> 32);
}

/* Write the 42 header bytes of a UDP datagram with a right IPv4 checksum and no UDP checksum. Host byte order. */
static inline void cl_udp_headers(struct cl_udp_frame *f, const uint8_t *src_mac, const uint8_t *dst_mac, uint32_t src,
                                  uint32_t dst, uint16_t src_port, uint16_t dst_port, uint16_t payload_len)
{
    memcpy(f->eth.dst, dst_mac, 6);
    memcpy(f->eth.src, src_mac, 6);
    f->eth.type_be = cl_be16(CL_ETHERTYPE_IPV4);
    f->ip = (struct cl_ipv4){.version_ihl = 0x45,
                             .total_len_be = cl_be16(CL_IPV4_HLEN + CL_UDP_HLEN + payload_len),
                             .frag_be = cl_be16(CL_IPV4_DF),
                             .ttl = 64,
                             .proto = CL_IPPROTO_UDP,
                             .src_be = cl_be32(src),
                             .dst_be = cl_be32(dst)};
    f->ip.check = cl_csum(&f->ip, sizeof f->ip);
    f->udp = (struct cl_udp){cl_be16(src_port), cl_be16(dst_port), cl_be16(CL_UDP_HLEN + payload_len), 0};
}

// cffi: begin
/* The inline functions above for bindings and tests; 16-bit results are values as read from memory by this machine. */
CL_API uint16_t cl_net_checksum(const uint8_t *data, size_t n);
CL_API uint16_t cl_net_checksum_update16(uint16_t check, uint16_t was, uint16_t is);
CL_API uint16_t cl_net_checksum_update32(uint16_t check, uint32_t was, uint32_t is);
CL_API bool cl_net_udp_checksum_ok(uint32_t src, uint32_t dst, const uint8_t *udp, uint16_t len);
/* RSS hash of a frame under the default key, and the queue of n that it falls to. */
CL_API uint32_t cl_net_rss_frame(const uint8_t *frame, unsigned len);
CL_API unsigned cl_net_rss_queue(uint32_t hash, unsigned n);
/* Fill 42 bytes of headers; with_checksum: also the UDP checksum of the payload that follows them already. */
CL_API void cl_net_udp_headers(uint8_t *frame, const uint8_t *src_mac, const uint8_t *dst_mac, uint32_t src,
                               uint32_t dst, uint16_t src_port, uint16_t dst_port, uint16_t payload_len,
                               bool with_checksum);
// cffi: end

#endif
