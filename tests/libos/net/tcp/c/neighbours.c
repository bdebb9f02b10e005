/* Connections of a neighbour whose MAC address is not known yet (libos/net/tcp/frames.c; libos/net/arp.h). Prints
 * "ok". */
#include "libos/net/arp.h"
#include "wire.h"

#define STRANGER 0x0a4e0001u
#define PORT 1000u
#define MANY 50u /* not more than wait for a neighbour, nor than may open at one time */
_Static_assert(MANY <= CL_ARP_HELD && MANY < BACKLOG, "none is dropped");

static struct cl_tcp_segment answers[MANY]; /* of each, the last */
static unsigned n_syns, n_data, n_elsewhere;

static void hear(uint32_t peer, uint16_t port, const struct cl_tcp_segment *s, const uint8_t *data)
{
    CHECK(peer == STRANGER && port >= PORT && port < PORT + MANY);
    answers[port - PORT] = *s;
    n_syns += !!(s->flags & CL_TCPF_SYN);
    n_elsewhere += !cl_mac_equal(heard_mac, attacker_mac);
    if (s->len) {
        CHECK(s->len == 1 && data[0] == 'x');
        n_data++;
    }
}

static void say_all(uint8_t flags, uint32_t seq, const char *data)
{
    for (unsigned i = 0; i < MANY; i++) {
        struct cl_tcp_segment s = {
            .seq = seq, .ack = flags & CL_TCPF_ACK ? answers[i].seq + 1 : 0, .flags = flags, .window = 1000};
        say(STRANGER, (uint16_t)(PORT + i), s, data, (unsigned)strlen(data));
    }
    run_for(MS);
}

int main(void)
{
    wire_begin(1, 1, 0);
    unsigned asked = arp_asked;
    hears = hear;
    arp_waits = true;
    attacker_mac[5] ^= 0x40; /* not the one that ARP tells of later */

    say_all(CL_TCPF_SYN, 1000, "");
    CHECK(n_syns == MANY && n_elsewhere == 0, "%u of %u SYNs are answered, %u elsewhere", n_syns, MANY, n_elsewhere);
    CHECK(arp_asked == asked + 1, "ARP asked %u times", arp_asked - asked);

    say_all(CL_TCPF_ACK | CL_TCPF_PSH, 1001, "x");
    CHECK(n_data == 0, "%u answers went where the stranger said", n_data);
    answer_arp(&arp_question);
    run_for(MS);
    CHECK(n_data == MANY, "%u of %u answers came", n_data, MANY);
    CHECK(n_elsewhere >= MANY && cl_mac_equal(heard_mac, ends[1]->mac));

    struct cl_net_stats stats;
    CHECK_EQ(cl_runtime_net_stats(victim, -1, &stats), 0);
    CHECK_EQ(stats.tx_dropped_arp, 0);
    CHECK_EQ(counts().resent, 0);
    wire_end();
    puts("ok");
    return 0;
}
