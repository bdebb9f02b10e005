/* Frames: segments of connections, resets to strangers, ARP. */
#include "engine.h"

#include "../loadgen/arp.h"
#include "../../../runtime/csum_copy.h"

static const uint32_t word_of_times = cl_be32(NOPS_TIMES);

void cl_tcpload_prepare(struct cl_tcpload *load)
{
    const struct cl_tcpload_config *c = &load->config;
    struct head *t = &load->template;
    memcpy(t->eth.dst, c->server_mac, 6);
    memcpy(t->eth.src, c->mac, 6);
    t->eth.type_be = cl_be16(CL_ETHERTYPE_IPV4);
    t->ip = (struct cl_ipv4){.version_ihl = 0x45,
                             .frag_be = cl_be16(CL_IPV4_DF),
                             .ttl = 64,
                             .proto = CL_IPPROTO_TCP,
                             .dst_be = load->server_ip_be};
    t->dst_be = load->server_port_be;
    load->ip_sum = cl_csum_add(0, &t->ip, sizeof t->ip);
    load->tcp_sum = (uint64_t)load->server_ip_be + cl_be16(CL_IPPROTO_TCP) + load->server_port_be;
}

uint32_t cl_tcpload_ip_of(const struct cl_tcpload *load, uint32_t flow)
{
    return load->config.ips == 1 ? load->config.ip : load->config.ip + flow / load->config.ports;
}

uint16_t cl_tcpload_port_of(const struct cl_tcpload *load, uint32_t flow)
{
    return (uint16_t)(load->config.first_port + (load->config.ips == 1 ? flow : flow % load->config.ports));
}

/* Headers of a segment with `options` bytes of options, which are written already and summed up in `sum`, as is the
 * data. The checksums are computed from the values: loads that span stores just made would wait for these. */
static void finish(const struct cl_tcpload *load, uint32_t ip, uint16_t port, uint8_t flags, uint32_t seq, uint32_t ack,
                   uint16_t window, uint32_t options, uint32_t len, uint64_t sum, struct cl_frame *frame)
{
    struct head *h = (struct head *)frame->data;
    uint32_t tcp_len = 20 + options + len;
    uint32_t src_be = cl_be32(ip), seq_be = cl_be32(seq), ack_be = cl_be32(ack);
    uint16_t total_be = cl_be16(CL_IPV4_HLEN + tcp_len), port_be = cl_be16(port);
    uint16_t offset_be = cl_be16((20 + options) / 4 << 12 | flags), window_be = cl_be16(window);
    memcpy(h, &load->template, PLAIN_BYTES);
    h->ip.total_len_be = total_be;
    h->ip.src_be = src_be;
    h->ip.check = cl_csum_finish(load->ip_sum + total_be + src_be);
    h->src_be = port_be;
    h->seq_be = seq_be;
    h->ack_be = ack_be;
    h->offset_be = offset_be;
    h->window_be = window_be;
    sum += load->tcp_sum + src_be + cl_be16(tcp_len) + port_be + seq_be + ack_be + offset_be + window_be;
    h->check = cl_csum_finish(sum);
    frame->len = (uint16_t)(CL_ETH_HLEN + CL_IPV4_HLEN + tcp_len);
}

static void write_syn(struct cl_tcpload *load, const struct conn *c, struct cl_frame *frame)
{
    struct head *h = (struct head *)frame->data;
    uint32_t options = load->config.plain ? 4 : SYN_BYTES;
    uint8_t *o = h->options;
    memset(o, 1, options); /* fillers */
    o[0] = 2;
    o[1] = 4;
    o[2] = (uint8_t)(load->mss >> 8);
    o[3] = (uint8_t)load->mss;
    if (options == SYN_BYTES) {
        o[5] = o[6] = 3;
        o[7] = (uint8_t)load->window_scale;
        cl_put32(o + 8, word_of_times);
        cl_put32(o + 12, cl_be32(load->now_ms));
        cl_put32(o + 16, 0);
    }
    uint16_t window = (uint16_t)cl_min(load->config.window_bytes, 65535u);
    finish(load, cl_tcpload_ip_of(load, c->flow), cl_tcpload_port_of(load, c->flow), SYN, c->una, 0, window, options, 0,
           cl_csum_add(0, o, options), frame);
}

void cl_tcpload_write(struct cl_tcpload *load, const struct conn *c, uint8_t flags, uint32_t seq, uint32_t len,
                      struct cl_frame *frame)
{
    if (cl_unlikely(flags & SYN)) {
        write_syn(load, c, frame);
        return;
    }
    struct head *h = (struct head *)frame->data;
    uint32_t options = 0;
    uint64_t sum = 0;
    if (cl_likely(c->flags & TIMES)) {
        uint32_t val_be = cl_be32(load->now_ms), ecr_be = cl_be32(c->ts_recent);
        options = TIMES_BYTES;
        cl_put32(h->options, word_of_times);
        cl_put32(h->options + 4, val_be);
        cl_put32(h->options + 8, ecr_be);
        sum = (uint64_t)word_of_times + val_be + ecr_be;
    }
    if (len)
        sum += cl_csum_copy(0, frame->data + PLAIN_BYTES + options, bytes_out(load, c, seq), len);
    uint16_t window = (uint16_t)cl_min(load->config.window_bytes >> c->rcv_scale, 65535u);
    finish(load, cl_tcpload_ip_of(load, c->flow), cl_tcpload_port_of(load, c->flow), flags, seq, c->rcv_nxt, window,
           options, len, sum, frame);
}

void cl_tcpload_write_forged(struct cl_tcpload *load, const struct forged *f, struct cl_frame *frame)
{
    uint32_t options = f->mss ? 4 : 0;
    uint64_t sum = 0;
    if (options) {
        cl_put32(((struct head *)frame->data)->options, cl_be32(0x02040000u | f->mss));
        sum = cl_be32(0x02040000u | f->mss);
    }
    if (f->len)
        sum += cl_csum_copy(0, frame->data + PLAIN_BYTES + options, load->pattern + f->place, f->len);
    finish(load, f->ip, f->port, f->flags, f->seq, f->ack, f->window, options, f->len, sum, frame);
}

void cl_tcpload_write_owed(struct cl_tcpload *load, const struct owed *owed, struct cl_frame *frame)
{
    if (owed->arp)
        cl_load_arp_write(frame, load->config.mac, CL_ARP_REPLY, owed->mac, owed->peer_ip_be, owed->own_ip_be);
    else
        finish(load, cl_tcpload_ip_of(load, owed->flow), cl_tcpload_port_of(load, owed->flow), RST, owed->seq, 0, 0, 0,
               0, 0, frame);
}

/* Not ours: an ARP question is owed an answer, the rest is counted. */
static void take_other(struct cl_tcpload *load, const struct cl_frame *frame)
{
    const struct cl_eth *eth = (const struct cl_eth *)frame->data;
    const struct cl_arp *arp = (const struct cl_arp *)(eth + 1);
    if (frame->len < sizeof *eth + sizeof *arp || eth->type_be != cl_be16(CL_ETHERTYPE_ARP)) {
        cl_count(&load->other.foreign, 1);
        return;
    }
    uint32_t mine = cl_be32(arp->target_ip_be) - load->config.ip;
    bool own = mine < load->config.ips || (load->attack.kind && mine - ATTACKERS_FROM < ATTACKERS);
    if (arp->op_be != cl_be16(CL_ARP_REQUEST) || !own || load->n_owed == OWED_MOST)
        return;
    struct owed *o = &load->owed[load->n_owed++];
    *o = (struct owed){.arp = true, .own_ip_be = arp->target_ip_be, .peer_ip_be = arp->sender_ip_be};
    memcpy(o->mac, arp->sender_mac, 6);
}

/* Options of a segment whose header has `n` bytes of them. False: they are malformed. */
static bool read_options(const uint8_t *o, uint32_t n, struct segment *s)
{
    if (cl_likely(n == TIMES_BYTES && cl_get32(o) == word_of_times)) {
        s->has_times = true;
        s->ts_val = cl_be32(cl_get32(o + 4));
        return true;
    }
    for (uint32_t at = 0; at < n && o[at] != 0;) {
        if (o[at] == 1) {
            at++;
            continue;
        }
        if (at + 2 > n || o[at + 1] < 2 || at + o[at + 1] > n)
            return false;
        const uint8_t *value = o + at + 2;
        uint32_t len = o[at + 1];
        if (o[at] == 2 && len == 4)
            s->mss = (uint16_t)(value[0] << 8 | value[1]);
        if (o[at] == 3 && len == 3)
            s->scale = value[0] < 14 ? value[0] : 14;
        if (o[at] == 8 && len == 10) {
            s->has_times = true;
            s->ts_val = cl_be32(cl_get32(value));
        }
        at += len;
    }
    return true;
}

/* Whose connection it is of the attacker's, by its address behind the first own one. */
static uint32_t attacker_at(const struct cl_tcpload *load, uint32_t ip, uint32_t port)
{
    uint32_t at = ip - ATTACKERS_FROM, index = at + ATTACKERS * (port - ATTACKERS_PORT);
    return at < ATTACKERS && port >= ATTACKERS_PORT && index < load->attack.n ? index : NONE;
}

bool cl_tcpload_read(struct cl_tcpload *load, const struct cl_frame *frame, struct segment *s)
{
    const struct head *h = (const struct head *)frame->data;
    if (cl_unlikely(frame->len < PLAIN_BYTES || h->eth.type_be != cl_be16(CL_ETHERTYPE_IPV4) ||
                    h->ip.version_ihl != 0x45 || h->ip.proto != CL_IPPROTO_TCP || h->ip.src_be != load->server_ip_be ||
                    h->src_be != load->server_port_be)) {
        take_other(load, frame);
        return false;
    }
    uint32_t total = cl_be16(h->ip.total_len_be), header = cl_be16(h->offset_be) >> 12 << 2;
    uint32_t ip = cl_be32(h->ip.dst_be) - load->config.ip, port = cl_be16(h->dst_be) - load->config.first_port;
    bool ours = ip < load->config.ips && port < load->config.ports;
    uint32_t attacker = cl_likely(ours) ? NONE : attacker_at(load, ip, cl_be16(h->dst_be));
    if (cl_unlikely(total + CL_ETH_HLEN > frame->len || header < 20 || header + CL_IPV4_HLEN > total ||
                    (!ours && attacker == NONE))) {
        cl_count(&load->other.foreign, 1);
        return false;
    }
    uint32_t tcp_len = total - CL_IPV4_HLEN;
    if (load->config.verify) {
        uint64_t pseudo = cl_csum_pseudo(h->ip.src_be, h->ip.dst_be, CL_IPPROTO_TCP, (uint16_t)tcp_len);
        if (cl_csum_finish(cl_csum_add(pseudo, &h->src_be, tcp_len))) {
            cl_count(&load->other.bad_checksums, 1);
            return false;
        }
    }
    *s = (struct segment){.data = frame->data + CL_ETH_HLEN + CL_IPV4_HLEN + header,
                          .seq = cl_be32(h->seq_be),
                          .ack = cl_be32(h->ack_be),
                          .window = cl_be16(h->window_be),
                          .flow = ip * load->config.ports + port,
                          .attacker = attacker,
                          .len = (uint16_t)(tcp_len - header),
                          .scale = 255,
                          .flags = (uint8_t)cl_be16(h->offset_be)};
    cl_count(&load->other.segments_in, 1);
    return read_options(h->options, header - 20, s);
}
