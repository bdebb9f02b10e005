/* What was put together is taken apart into the same frames; what Linux could not have sent is refused, and never
 * leaves the buffers. Bursts are drawn at random: some frames are alike, some differ in a header, a length or a
 * checksum, and those may not be joined. Usage: tap_segments ROUNDS SEED */
#include "drivers/nic/tap/segments.h"

#include "tests/support/c/check.h"

#include <stddef.h>

#define BURST 64
#define MOST 1514

static uint64_t state;
static bool
    number_matters; /* of a burst: whether frames might be fragmented, and so are known by their identification */
static uint8_t super_data[TAP_SUPER_BYTES];

static uint32_t below(uint32_t n)
{
    return (uint32_t)(next_random(&state) % n);
}

static void make(struct cl_frame *f, unsigned number, uint32_t payload)
{
    struct cl_udp_frame *u = (struct cl_udp_frame *)f->data;
    const uint8_t macs[12] = {2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2};
    cl_udp_headers(u, macs, macs + 6, 0x0a4d000b, 0x0a4d0001, 11211, 40000, (uint16_t)payload);
    u->ip.id_be = cl_be16(65530 + number); /* it wraps */
    u->ip.frag_be = number_matters ? 0 : cl_be16(CL_IPV4_DF);
    u->ip.check = 0;
    u->ip.check = cl_csum(&u->ip, sizeof u->ip);
    for (uint32_t i = 0; i < payload; i++)
        u->payload[i] = (uint8_t)next_random(&state);
    u->udp.check = cl_udp_checksum(u->ip.src_be, u->ip.dst_be, &u->udp, (uint16_t)(CL_UDP_HLEN + payload));
    f->len = (uint16_t)(CL_UDP_HEADERS + payload);
}

/* The checksums again, of a frame that is right but for them. */
static void seal(struct cl_frame *f)
{
    struct cl_udp_frame *u = (struct cl_udp_frame *)f->data;
    u->ip.check = u->udp.check = 0;
    u->ip.check = cl_csum(&u->ip, sizeof u->ip);
    u->udp.check = cl_udp_checksum(u->ip.src_be, u->ip.dst_be, &u->udp, cl_be16(u->udp.len_be));
}

/* One thing that makes a frame one that may not go with the others. */
static void spoil(struct cl_frame *f)
{
    struct cl_udp_frame *u = (struct cl_udp_frame *)f->data;
    switch (below(number_matters ? 14 : 13)) {
    case 0:
        u->eth.dst[5] ^= 1;
        break;
    case 1:
        u->udp.dst_port_be ^= 256;
        seal(f);
        break;
    case 2:
        u->udp.src_port_be ^= 256;
        seal(f);
        break;
    case 3:
        u->ip.dst_be ^= 1 << 24;
        seal(f);
        break;
    case 4:
        u->ip.ttl--;
        seal(f);
        break;
    case 5:
        u->ip.tos ^= 4;
        seal(f);
        break;
    case 6:
        u->ip.frag_be = cl_be16(CL_IPV4_MF);
        seal(f);
        break;
    case 7:
        u->udp.check = 0;
        break;
    case 8:
        u->udp.check ^= 1;
        break;
    case 9:
        u->ip.check ^= 1;
        break;
    case 10:
        u->ip.proto = CL_IPPROTO_TCP;
        seal(f);
        break;
    case 13:
        u->ip.id_be ^= 1;
        seal(f);
        break;
    case 11:
        u->udp.len_be = cl_be16(cl_be16(u->udp.len_be) - 1);
        break;
    default:
        u->eth.type_be = cl_be16(CL_ETHERTYPE_ARP);
    }
}

/* A burst joined as Linux would see it, and taken apart again. Returns how many frames were joined. */
static unsigned round_trip(const struct cl_frame *frames, unsigned n)
{
    struct virtio_net_hdr h;
    struct cl_udp_frame headers;
    uint8_t out[MOST];
    unsigned joined = tap_joinable(frames, n);
    CHECK(joined >= 1 && joined <= n);
    if (joined == 1)
        return 1;
    tap_join(frames, joined, &h, &headers);
    uint32_t len = CL_UDP_HEADERS;
    memcpy(super_data, &headers, len);
    for (unsigned i = 0; i < joined; i++) {
        memcpy(super_data + len, frames[i].data + CL_UDP_HEADERS, frames[i].len - CL_UDP_HEADERS);
        len += frames[i].len - CL_UDP_HEADERS;
    }
    CHECK(len - CL_ETH_HLEN <= 65535);
    struct cl_udp_frame *u = (struct cl_udp_frame *)super_data;
    CHECK(cl_csum(&u->ip, sizeof u->ip) == 0);
    CHECK_EQ(cl_be16(u->ip.total_len_be), len - CL_ETH_HLEN);
    struct tap_super s = {.data = super_data};
    CHECK(tap_super_begin(&s, len, &h, MOST));
    for (unsigned i = 0; i < joined; i++) {
        CHECK(tap_super_left(&s));
        CHECK_EQ(tap_super_next(&s, out), frames[i].len);
        CHECK(!memcmp(out, frames[i].data, frames[i].len), "(frame %u of %u)", i, joined);
    }
    CHECK(!tap_super_left(&s));
    CHECK(len > UINT16_MAX || tap_checksum(super_data, len, &h)); /* as of one that was not to be taken apart */
    CHECK(len > UINT16_MAX || cl_udp_checksum_ok(u->ip.src_be, u->ip.dst_be, &u->udp, cl_be16(u->udp.len_be)));
    return joined;
}

static void bursts(void)
{
    static uint8_t data[BURST][2048];
    struct cl_frame frames[BURST];
    uint32_t payload = 1 + below(below(2) ? 1472 : 200);
    number_matters = below(2);
    unsigned n = 1 + below(BURST), odd = below(2 * BURST), shorter = below(2 * BURST);
    for (unsigned i = 0; i < n; i++) {
        frames[i] = (struct cl_frame){.data = data[i]};
        make(&frames[i], i, i == shorter ? 1 + below(payload) : payload);
        if (i == odd)
            spoil(&frames[i]);
    }
    bool is_shorter = shorter < n && frames[shorter].len < CL_UDP_HEADERS + payload;
    unsigned expected = cl_min(n, (65535 - 28 + payload) / payload); /* at least as many as fit are tried below */
    unsigned joined = round_trip(frames, n);
    if (odd < n)
        expected = cl_min(expected, odd ? odd : 1);
    if (is_shorter)
        expected = cl_min(expected, shorter || n == 1 ? shorter + 1 : 1);
    CHECK(joined <= expected, "(%u joined, %u may be)", joined, expected);
    if ((uint64_t)payload * n < 60000) /* else the length ends it */
        CHECK_EQ(joined, expected);
}

/* Headers that Linux would not send: refused, or taken apart into frames that fit. */
static void nonsense(void)
{
    uint8_t out[MOST];
    uint32_t len = below(below(2) ? 300 : 70000);
    for (unsigned i = 0; i < 64; i++)
        super_data[i] = (uint8_t)next_random(&state);
    if (below(2))
        cl_put16(super_data + 12, cl_be16(below(2) ? CL_ETHERTYPE_IPV4 : 0x86dd));
    struct virtio_net_hdr h = {.flags = (uint8_t)below(3),
                               .gso_type = below(4) ? 5 : (uint8_t)below(256),
                               .gso_size = (uint16_t)below(below(2) ? 3000 : 70000),
                               .csum_start = (uint16_t)below(below(2) ? 100 : 70000),
                               .csum_offset = (uint16_t)below(below(2) ? 100 : 70000)};
    struct tap_super s = {.data = super_data};
    if (tap_super_begin(&s, len, &h, MOST))
        for (uint32_t left = len - s.at, n; left; left -= n) {
            uint32_t bytes = tap_super_next(&s, out);
            n = bytes - s.udp - CL_UDP_HLEN;
            CHECK(bytes <= MOST && n <= left && n > 0);
        }
    CHECK(!tap_super_left(&s));
    uint8_t frame[MOST] = {0};
    uint32_t bytes = 14 + below(MOST - 14);
    CHECK(!tap_checksum(frame, bytes, &h) || h.csum_start + h.csum_offset + 2u <= bytes);
}

int main(int argc, char **argv)
{
    CHECK_EQ(argc, 3);
    state = strtoull(argv[2], NULL, 0) | 1;
    for (unsigned long i = strtoul(argv[1], NULL, 0); i; i--) {
        bursts();
        nonsense();
    }
    return 0;
}
