/* The other end of fuzz_lwip.c: lwIP as Debian has it (liblwip-dev), on one network interface that is a function.
 *
 * Its "raw" interface needs no thread, and of time nothing but a call of tcp_tmr each 250 ms. So it runs by whatever
 * clock its caller has. */
#ifndef TESTS_LIBOS_TCP_LWIP_END_H
#define TESTS_LIBOS_TCP_LWIP_END_H

#include <lwip/init.h>
#include <lwip/ip4.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/priv/tcp_priv.h>
#include <lwip/tcp.h>

#define LWIP_TMR_NS 250000000ull

static struct netif lwip_netif;
static void (*lwip_sends)(const uint8_t *packet, uint32_t len);

static err_t lwip_output(struct netif *netif, struct pbuf *p, const ip4_addr_t *to)
{
    static uint8_t packet[2048];
    (void)netif, (void)to;
    CHECK(p->tot_len <= sizeof packet);
    lwip_sends(packet, pbuf_copy_partial(p, packet, p->tot_len, 0));
    return ERR_OK;
}

static err_t lwip_up(struct netif *netif)
{
    netif->output = lwip_output;
    netif->mtu = 1500;
    return ERR_OK;
}

/* Once. Addresses in host byte order. */
static void lwip_begin(uint32_t ipv4, void (*sends)(const uint8_t *packet, uint32_t len))
{
    ip4_addr_t ip = {cl_be32(ipv4)}, mask = {cl_be32(0xffffff00u)}, none = {0};
    lwip_init();
    lwip_sends = sends;
    CHECK(netif_add(&lwip_netif, &ip, &mask, &none, NULL, lwip_up, ip_input) != NULL);
    netif_set_default(&lwip_netif);
    netif_set_link_up(&lwip_netif);
    netif_set_up(&lwip_netif);
}

static void lwip_take(const uint8_t *packet, uint32_t len)
{
    struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)len, PBUF_RAM);
    CHECK(p && pbuf_take(p, packet, (u16_t)len) == ERR_OK);
    if (lwip_netif.input(p, &lwip_netif) != ERR_OK)
        pbuf_free(p);
}

/* Nobody has a connection, nor did of late. */
static bool lwip_is_quiet(void)
{
    return !tcp_active_pcbs && !tcp_tw_pcbs && !tcp_bound_pcbs && !tcp_listen_pcbs.listen_pcbs;
}

#endif
