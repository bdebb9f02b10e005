/* Fuzzing everything that looks at received bytes: parser, ARP cache, ICMP and UDP answers. libFuzzer's entry, and a
 * main of its own with a seeded mutator for compilers without libFuzzer: argv[1] seed, argv[2] frames.
 *
 * Each input is copied to a block of exactly its size, so that ASan sees one byte too many. What is answered must
 * parse. */
#include "libos/net/netif.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cl_net_self self;
static struct cl_arp_cache *cache;
static uint64_t now_ns = 1;

static void fail(const char *why)
{
    fprintf(stderr, "%s\n", why);
    abort();
}

/* What the peer reads of the error is the datagram that it sent. */
static void check_about(const uint8_t *message, const struct cl_ipv4 *ip)
{
    struct cl_icmp_about about;
    const struct cl_udp *udp = (const struct cl_udp *)(ip + 1);
    cl_icmp_read(message, &about);
    if (about.dst_be != ip->dst_be || about.src_port_be != udp->src_port_be || about.dst_port_be != udp->dst_port_be ||
        about.error != ECONNREFUSED)
        fail("an ICMP error about another datagram");
}

static void answer(const uint8_t *frame, const struct cl_rx_info *info)
{
    uint8_t out[1514];
    struct cl_net_self peer;
    struct cl_rx_info back;
    unsigned n;
    const struct cl_eth *eth = (const struct cl_eth *)frame;
    const struct cl_ipv4 *ip = (const struct cl_ipv4 *)(frame + CL_ETH_HLEN);
    if (cl_mac_is_group(eth->src))
        return;
    cl_net_self_set(&peer, eth->src, cl_be32(ip->src_be), 32, 0);
    if (info->verdict == CL_RX_ICMP) {
        n = cl_icmp_echo_reply(&self, frame, info, out, sizeof out);
        if (n == 0)
            return;
        cl_rx_parse_any(&peer, out, n, &back);
        if (back.reason != CL_DROP_ICMP_TYPE) /* an echo reply: right in every layer below */
            fail("a wrong echo reply");
    } else {
        n = cl_icmp_port_unreachable(&self, frame, info, out, sizeof out);
        cl_rx_parse_any(&peer, out, n, &back);
        bool options = ip->version_ihl != 0x45; /* we send none: it is not about a datagram of ours */
        if (options ? back.reason != CL_DROP_ICMP_ERROR : back.verdict != CL_RX_ICMP_ERROR)
            fail("a wrong ICMP error");
        if (!options)
            check_about(out + back.l4, ip);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (!cache) {
        cache = calloc(1, sizeof *cache);
        cl_net_self_set(&self, (const uint8_t[6]){2, 0, 0, 0, 0, 1}, 0x0a000001, 24, 0);
    }
    if (size > 1600)
        return 0;
    uint8_t *frame = malloc(size ? size : 1);
    memcpy(frame, data, size);
    struct cl_rx_info info, slow;
    cl_rx_parse(&self, frame, (unsigned)size, &info);
    cl_rx_parse_slow(&self, frame, (unsigned)size, &slow);
    if (memcmp(&info, &slow, sizeof info))
        fail("fast and slow path disagree");
    if (info.verdict == CL_RX_ARP) {
        struct cl_arp_todo todo;
        uint8_t mac[6];
        bool dropped;
        uint32_t resolve_be;
        cl_arp_input(cache, &self, (const struct cl_arp *)(frame + info.l4), now_ns += 1000000, &todo);
        cl_arp_lookup(cache, cl_get32(frame + info.l4 + 14), now_ns, mac, NULL, NULL, &dropped);
        cl_arp_tick(cache, now_ns, &resolve_be, &todo);
    } else if (info.verdict == CL_RX_ICMP_ERROR) {
        struct cl_icmp_about about;
        cl_icmp_read(frame + info.l4, &about);
        if (about.error <= 0)
            fail("an ICMP error that is none");
    } else if (info.verdict == CL_RX_ICMP || info.verdict == CL_RX_UDP) {
        answer(frame, &info);
    }
    free(frame);
    return 0;
}

#ifndef FUZZ
static uint64_t state;

static unsigned draw(unsigned n)
{
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    return (unsigned)(state >> 33) % n;
}

/* A right frame to start from: UDP with or without options, echo request, ARP. */
static size_t seed_frame(uint8_t *f)
{
    static const uint8_t arp[] = {0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 2, 10, 0, 0, 2, 0, 0, 0, 0, 0, 0, 10, 0, 0, 1};
    unsigned kind = draw(4), options = kind == 1 ? 8 : 0, body = draw(100);
    memcpy(f, "\2\0\0\0\0\1\2\0\0\0\0\2\10\0", 14);
    if (kind == 3) {
        f[13] = 6;
        memcpy(f + 14, arp, sizeof arp);
        return 14 + sizeof arp;
    }
    struct cl_ipv4 *ip = (struct cl_ipv4 *)(f + 14);
    uint8_t *l4 = f + 34 + options;
    cl_ipv4_fill(ip, cl_be32(0x0a000002), self.ip_be, kind == 2 ? 1 : 17, options + 8 + body);
    memset(f + 34, 1, options);
    ip->version_ihl = (uint8_t)(0x45 + options / 4);
    ip->check = 0;
    ip->check = cl_csum(ip, 20 + options);
    for (unsigned i = 0; i < body; i++)
        l4[8 + i] = (uint8_t)draw(256);
    if (kind == 2) {
        memset(l4, 0, 8);
        l4[0] = 8;
        cl_put16(l4 + 2, cl_csum(l4, 8 + body));
    } else {
        cl_put16(l4, cl_be16(5555));
        cl_put16(l4 + 2, cl_be16(9000));
        cl_put16(l4 + 4, cl_be16(8 + body));
        cl_put16(l4 + 6, 0);
    }
    return 42 + options + body;
}

int main(int argc, char **argv)
{
    uint8_t frame[256] = {0};
    state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    unsigned long total = argc > 2 ? strtoul(argv[2], NULL, 0) : 100000;
    LLVMFuzzerTestOneInput(frame, 0);
    for (unsigned long i = 0; i < total; i++) {
        size_t n = seed_frame(frame);
        for (unsigned flips = draw(4); flips; flips--)
            frame[draw(draw(2) ? (unsigned)n : cl_min(50u, (unsigned)n))] = (uint8_t)draw(256);
        if (draw(4) == 0)
            n = draw((unsigned)n + 1);
        if (draw(2) && n >= 34) { /* let the mutation behind the header checksum be reached */
            unsigned hlen = cl_min((frame[14] & 15) * 4u, (unsigned)n - 14);
            frame[24] = frame[25] = 0;
            cl_put16(frame + 24, cl_csum(frame + 14, hlen));
        }
        LLVMFuzzerTestOneInput(frame, n);
    }
    free(cache);
    printf("ok\n");
    return 0;
}
#endif
