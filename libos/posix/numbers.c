/* TCP_INFO: the numbers of a connection, as Linux' struct has them, of which libc knows the first part only. What
 * nobody counts here is 0. */
#include "socket.h"

#include <linux/tcp.h>
#include <string.h>

/* As Linux numbers them (net/tcp_states.h). */
enum { CLOSED = 7, LISTENS = 10 };

/* ... by those of RFC 9293 in order. */
static uint8_t linux_state(uint32_t state)
{
    static const uint8_t of[] = {CLOSED, LISTENS, 2, 3, 1, 4, 5, 8, 11, 9, 6};
    return state < sizeof of ? of[state] : CLOSED;
}

static uint8_t recovery_of(const struct cl_tcp_info *i)
{
    const uint8_t of[] = {i->sacked ? TCP_CA_Disorder : TCP_CA_Open, TCP_CA_Recovery, TCP_CA_Loss, TCP_CA_CWR};
    return of[i->recovering];
}

static uint8_t options_of(const struct cl_tcp_info *i)
{
    return (uint8_t)(i->times * TCPI_OPT_TIMESTAMPS | i->sacks * TCPI_OPT_SACK | i->scales * TCPI_OPT_WSCALE |
                     i->ecn * TCPI_OPT_ECN);
}

static struct tcp_info linux_info(const struct cl_tcp_info *i)
{
    return (struct tcp_info){.tcpi_state = linux_state(i->state),
                             .tcpi_ca_state = recovery_of(i),
                             .tcpi_retransmits = (uint8_t)cl_min(i->retries, 255u),
                             .tcpi_probes = (uint8_t)cl_min(i->probes, 255u),
                             .tcpi_backoff = (uint8_t)cl_min(i->backoff, 255u),
                             .tcpi_options = options_of(i),
                             .tcpi_snd_wscale = (uint8_t)i->snd_scale,
                             .tcpi_rcv_wscale = (uint8_t)i->rcv_scale,
                             .tcpi_rto = i->rto_us,
                             .tcpi_snd_mss = i->snd_mss,
                             .tcpi_rcv_mss = i->rcv_mss,
                             .tcpi_unacked = i->unacked,
                             .tcpi_sacked = i->sacked,
                             .tcpi_lost = i->lost,
                             .tcpi_rtt = i->rtt_us,
                             .tcpi_rttvar = i->rtt_var_us,
                             .tcpi_snd_ssthresh = cl_min(i->ssthresh, (uint32_t)INT32_MAX),
                             .tcpi_snd_cwnd = i->cwnd,
                             .tcpi_reordering = 3,
                             .tcpi_total_retrans = i->resent,
                             .tcpi_notsent_bytes = i->unsent,
                             .tcpi_min_rtt = i->rtt_least_us,
                             .tcpi_delivery_rate = i->delivery_rate,
                             .tcpi_dsack_dups = i->dsacks,
                             .tcpi_snd_wnd = i->snd_wnd};
}

uint32_t cl_posix_socket_numbers(struct cl_posix_socket *s, void *out, uint32_t bytes)
{
    struct cl_tcp_info i;
    bool connection = cl_load_acquire(&s->state) > CL_POSIX_LISTENS;
    bool listens = !connection && cl_load_acquire(&s->stream);
    struct tcp_info t = {.tcpi_state = listens ? LISTENS : CLOSED};
    if (connection && cl_posix_socket_info(s, &i) == 0)
        t = linux_info(&i);
    bytes = cl_min(bytes, (uint32_t)sizeof t);
    memcpy(out, &t, bytes);
    return bytes;
}
