/* A baseline of `corelane bench tcp`: an echo server on lwIP as Debian has it (liblwip-dev), on a queue of one of our
 * NICs. The benchmark compiles this file by itself with -DCORELANE_LWIP into a library that it loads; in libcorelane it
 * is empty.
 *
 * One pinned thread polls the queue and calls lwIP's "raw" interface, which needs no thread of its own. A frame is
 * given to lwIP where it lies, without a copy: the server takes all at once, so nothing of it is kept. The peer's MAC
 * address is that of the last frame: no ARP is done, but answered. lwIP's state is global: one server at a time. */
#ifdef CORELANE_LWIP

#include <corelane/drivers/nic.h>

#include <errno.h>
#include <lwip/init.h>
#include <lwip/ip4.h>
#include <lwip/netif.h>
#include <lwip/pbuf.h>
#include <lwip/priv/tcp_priv.h>
#include <lwip/tcp.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define ETH_BYTES 14
#define TMR_NS 250000000ull
#define POLLS_A_LOOK 256 /* at the clock */
#define ARP_BYTES 42

static struct {
    struct cl_nic *nic;
    struct netif netif;
    struct tcp_pcb *listener;
    pthread_t thread;
    uint32_t stop;
    uint32_t ip_be;
    uint8_t peer[6];
    struct cl_frame tx[CL_NIC_BURST];
    unsigned n_tx;
} server;
static bool begun;

static void flush(void)
{
    for (unsigned done = 0; done < server.n_tx;)
        done += server.nic->ops->tx_burst(server.nic, 0, server.tx + done, server.n_tx - done);
    server.n_tx = 0;
}

static err_t output(struct netif *netif, struct pbuf *p, const ip4_addr_t *to)
{
    (void)netif, (void)to;
    if (server.n_tx == CL_NIC_BURST)
        flush();
    struct cl_frame *f = &server.tx[server.n_tx];
    if (server.nic->ops->alloc(server.nic, 0, f, 1) == 0)
        return ERR_MEM;
    memcpy(f->data, server.peer, 6);
    memcpy(f->data + 6, server.nic->mac, 6);
    f->data[12] = 0x08;
    f->data[13] = 0;
    f->len = (uint16_t)(ETH_BYTES + pbuf_copy_partial(p, f->data + ETH_BYTES, p->tot_len, 0));
    server.n_tx++;
    return ERR_OK;
}

static err_t up(struct netif *netif)
{
    netif->output = output;
    netif->mtu = (u16_t)server.nic->mtu;
    return ERR_OK;
}

static err_t on_data(void *arg, struct tcp_pcb *pcb, struct pbuf *p, err_t error)
{
    (void)arg, (void)error;
    if (!p)
        return tcp_close(pcb);
    for (struct pbuf *q = p; q; q = q->next)
        if (tcp_write(pcb, q->payload, q->len, TCP_WRITE_FLAG_COPY) != ERR_OK) {
            pbuf_free(p);
            tcp_abort(pcb);
            return ERR_ABRT;
        }
    tcp_recved(pcb, p->tot_len);
    pbuf_free(p);
    return ERR_OK;
}

static err_t on_accept(void *arg, struct tcp_pcb *pcb, err_t error)
{
    (void)arg;
    if (error != ERR_OK || !pcb)
        return ERR_VAL;
    tcp_nagle_disable(pcb);
    tcp_recv(pcb, on_data);
    return ERR_OK;
}

/* An ARP question becomes its answer. */
static void answer_arp(struct cl_frame *f)
{
    uint8_t asker[10];
    if (f->len < ARP_BYTES || memcmp(f->data + 12, "\x08\x06\0\1\x08\0\6\4\0\1", 10) ||
        memcmp(f->data + 38, &server.ip_be, 4))
        return;
    memcpy(asker, f->data + 22, 10);
    struct cl_frame *a = &server.tx[server.n_tx];
    if (server.n_tx == CL_NIC_BURST || server.nic->ops->alloc(server.nic, 0, a, 1) == 0)
        return;
    memcpy(a->data, asker, 6);
    memcpy(a->data + 6, server.nic->mac, 6);
    memcpy(a->data + 12, "\x08\x06\0\1\x08\0\6\4\0\2", 10);
    memcpy(a->data + 22, server.nic->mac, 6);
    memcpy(a->data + 28, &server.ip_be, 4);
    memcpy(a->data + 32, asker, 10);
    a->len = ARP_BYTES;
    server.n_tx++;
}

static void take(struct cl_frame *f)
{
    if (f->len <= ETH_BYTES || f->data[12] != 0x08 || f->data[13] != 0) {
        answer_arp(f);
        return;
    }
    memcpy(server.peer, f->data + 6, 6);
    struct pbuf *p = pbuf_alloc(PBUF_RAW, (u16_t)(f->len - ETH_BYTES), PBUF_REF);
    if (!p)
        return;
    p->payload = f->data + ETH_BYTES;
    if (server.netif.input(p, &server.netif) != ERR_OK)
        pbuf_free(p);
}

static uint64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static void *serve(void *arg)
{
    struct cl_frame frames[CL_NIC_BURST];
    uint64_t tmr_ns = now_ns();
    (void)arg;
    for (unsigned polls = 0; !cl_load_relaxed(&server.stop); polls++) {
        unsigned got = server.nic->ops->rx_burst(server.nic, 0, frames, CL_NIC_BURST);
        for (unsigned i = 0; i < got; i++)
            take(&frames[i]);
        if (got)
            server.nic->ops->free(server.nic, 0, frames, got);
        if (polls % POLLS_A_LOOK == 0 && now_ns() - tmr_ns >= TMR_NS) {
            tmr_ns += TMR_NS;
            tcp_tmr();
        }
        if (server.n_tx)
            flush();
    }
    return NULL;
}

static int listen_at(uint16_t port)
{
    struct tcp_pcb *pcb = tcp_new();
    if (!pcb || tcp_bind(pcb, IP_ADDR_ANY, port) != ERR_OK)
        return -EADDRINUSE;
    server.listener = tcp_listen_with_backlog(pcb, 255);
    if (!server.listener)
        return -ENOMEM;
    tcp_accept(server.listener, on_accept);
    return 0;
}

/* Serve queue 0 of a NIC at an address (host byte order) on a thread pinned to `cpu`. -errno. */
CL_API int lwip_tcp_start(struct cl_nic *nic, uint32_t ipv4, uint16_t port, int cpu)
{
    ip4_addr_t ip = {__builtin_bswap32(ipv4)}, mask = {__builtin_bswap32(0xffff0000u)}, none = {0};
    cpu_set_t set;
    pthread_attr_t attr;
    if (!begun)
        lwip_init();
    begun = true;
    memset(&server, 0, sizeof server);
    server.nic = nic;
    server.ip_be = ip.addr;
    netif_add(&server.netif, &ip, &mask, &none, NULL, up, ip_input);
    netif_set_default(&server.netif);
    netif_set_link_up(&server.netif);
    netif_set_up(&server.netif);
    int rc = listen_at(port);
    CPU_ZERO(&set);
    CPU_SET((unsigned)cpu, &set);
    pthread_attr_init(&attr);
    pthread_attr_setaffinity_np(&attr, sizeof set, &set);
    if (!rc)
        rc = -pthread_create(&server.thread, &attr, serve, NULL);
    pthread_attr_destroy(&attr);
    return rc;
}

CL_API void lwip_tcp_stop(void)
{
    cl_store_relaxed(&server.stop, 1);
    pthread_join(server.thread, NULL);
    while (tcp_active_pcbs)
        tcp_abort(tcp_active_pcbs);
    flush();
    tcp_close(server.listener);
    netif_remove(&server.netif);
}

#endif
