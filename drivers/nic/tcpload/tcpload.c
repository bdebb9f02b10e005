/* The client's life, its control by another thread, and the three calls of its own thread: due, generate, receive. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>

static int refuse(char *err, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return -EINVAL;
}

#define OR(value, otherwise) ((value) = (value) ? (value) : (otherwise))

static int check_script(const struct cl_tcpload_config *c, char *err)
{
    const struct cl_tcpload_script *s = c->script;
    if (c->traffic != CL_TCPLOAD_ASK || s->lines < 1 || s->lines > CL_TCPLOAD_LINES)
        return refuse(err, "a script is of ask, and has from 1 to 65535 lines");
    for (uint32_t i = 0; i < s->lines; i++) {
        uint32_t asks = s->request_at[i + 1] - s->request_at[i];
        if (s->request_at[i + 1] < s->request_at[i] || s->answer_at[i + 1] <= s->answer_at[i] || asks < 1 ||
            asks > c->mtu - 52)
            return refuse(err, "a script's request has from 1 byte to one segment, up to mtu - 52; its answer any");
    }
    return 0;
}

static int settle_config(struct cl_tcpload_config *c, char *err)
{
    OR(c->ip, 0x0a4d0001u);
    OR(c->ips, 1);
    OR(c->server_ip, 0x0a4d0002u);
    OR(c->server_port, 9000);
    OR(c->first_port, 20000);
    OR(c->ports, 40000);
    OR(c->connections, 1);
    OR(c->request_bytes, 64);
    OR(c->window_bytes, 1u << 20);
    OR(c->mtu, 1500);
    OR(c->late_ns, 10000);
    OR(c->drain_ns, 50000000);
    OR(c->give_up_ns, 5000000000u);
    if (cl_get32(c->mac) == 0 && cl_get16(c->mac + 4) == 0)
        memcpy(c->mac, (uint8_t[6]){2, 0, 0, 0, 0, 1}, 6);
    if (c->traffic > CL_TCPLOAD_HOLD)
        return refuse(err, "unknown traffic");
    if (c->arrivals != CL_ARRIVALS_POISSON && c->arrivals != CL_ARRIVALS_UNIFORM && c->arrivals != CL_ARRIVALS_CLOSED)
        return refuse(err, "arrivals must be poisson, uniform or closed");
    if (c->first_port + c->ports > 65536 || c->ips > 256)
        return refuse(err, "first_port + ports must be at most 65536, ips at most 256");
    if ((uint64_t)c->ports * c->ips < c->connections)
        return refuse(err, "there must be a port for each connection: give more ports or own addresses");
    if (c->mtu < 576 || c->mtu > 9000)
        return refuse(err, "mtu must be from 576 to 9000");
    if (c->request_bytes > c->mtu - 52)
        return refuse(err, "a request must fit into one segment: request_bytes up to mtu - 52");
    if (c->window_bytes < 4 * c->mtu || c->window_bytes > 1u << 30)
        return refuse(err, "window_bytes must be from four segments to 2^30");
    if (c->keep && c->traffic != CL_TCPLOAD_ASK)
        return refuse(err, "only connections of ask are kept between runs");
    return c->script ? check_script(c, err) : 0;
}

static bool allocate(struct cl_tcpload *load)
{
    uint32_t n = load->config.connections;
    load->conns = aligned_alloc(CL_CACHELINE, n * sizeof *load->conns);
    load->conn_of = malloc(load->flows * sizeof *load->conn_of);
    if (!load->conns || !load->conn_of || !cl_tcpload_make_ring(&load->out, n) ||
        !cl_tcpload_make_ring(&load->later, n) || !cl_tcpload_make_ring(&load->idle, n) ||
        !cl_tcpload_make_ring(&load->free_flows, load->flows))
        return false;
    memset(load->conns, 0, n * sizeof *load->conns);
    memset(load->conn_of, 0xff, load->flows * sizeof *load->conn_of);
    for (uint32_t flow = 0; flow < load->flows; flow++)
        ring_push(&load->free_flows, flow);
    return true;
}

static int build(struct cl_tcpload *load)
{
    const struct cl_tcpload_config *c = &load->config;
    load->clock = cl_clock_default();
    load->pattern = cl_tcpload_pattern();
    load->flows = c->ports * c->ips;
    load->server_ip_be = cl_be32(c->server_ip);
    load->server_port_be = cl_be16(c->server_port);
    load->mss = (uint16_t)(c->mtu - 40);
    while (!c->plain && c->window_bytes >> load->window_scale > 65535)
        load->window_scale++;
    load->late_ticks = (uint64_t)cl_ns_to_ticks(load->clock, (int64_t)c->late_ns);
    load->drain_ticks = (uint64_t)cl_ns_to_ticks(load->clock, (int64_t)c->drain_ns);
    load->give_up_ticks = (uint64_t)cl_ns_to_ticks(load->clock, (int64_t)c->give_up_ns);
    load->random.state = c->seed;
    load->next_tsc = NEVER;
    if (!allocate(load))
        return -ENOMEM;
    cl_tcpload_prepare(load);
    if (!asks(load) || closed_loop(load))
        return 0;
    int rc = cl_gaps_draw(&load->gaps, c->arrivals, c->seed, 1, 0);
    load->gap_shift = load->gaps.shift + 24 - 16;
    return rc;
}

int cl_tcpload_new(const struct cl_tcpload_config *config, struct cl_tcpload **out, char *err)
{
    struct cl_tcpload_config c = *config;
    int rc = settle_config(&c, err);
    if (rc)
        return rc;
    struct cl_tcpload *load = aligned_alloc(CL_CACHELINE, sizeof *load);
    if (load) {
        memset(load, 0, sizeof *load);
        load->config = c;
        rc = build(load);
    }
    if (!load || rc) {
        refuse(err, "out of memory for the client's connections");
        cl_tcpload_delete(load);
        return -ENOMEM;
    }
    *out = load;
    return 0;
}

static void phases_free(struct cl_tcpload *load)
{
    for (uint32_t i = 0; i < load->n_phases; i++)
        cl_hist_delete(load->phases[i].latency);
    free(load->phases);
    load->phases = NULL;
    load->n_phases = 0;
}

void cl_tcpload_delete(struct cl_tcpload *load)
{
    if (!load)
        return;
    phases_free(load);
    cl_gaps_free(&load->gaps);
    free(load->conns);
    free(load->conn_of);
    free(load->out.at);
    free(load->later.at);
    free(load->idle.at);
    free(load->free_flows.at);
    cl_tcpload_attackers_free(&load->attack);
    free(load);
}

static int phases_set(struct cl_tcpload *load, const struct cl_loadgen_phase *phases, unsigned n)
{
    struct phase *made = calloc(n, sizeof *made);
    if (!made)
        return -ENOMEM;
    phases_free(load);
    load->phases = made;
    load->n_phases = n;
    for (unsigned i = 0; i < n; i++) {
        double hz = (double)load->clock->hz;
        made[i].end_tsc = (uint64_t)cl_ns_to_ticks(load->clock, (int64_t)phases[i].duration_ns);
        made[i].mean_gap = phases[i].rate > 0 ? (uint64_t)(hz / phases[i].rate * (1 << 24) + 0.5) : 0;
        if (!phases[i].measured)
            continue;
        if (!(made[i].latency = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS)))
            return -ENOMEM;
        /* Requests are not to wait for fresh pages: the kernel takes the server's CPU for each, too, if it is a thread
         * of this process. */
        memset(cl_hist_counts(made[i].latency), 0, made[i].latency->n_buckets * sizeof(uint64_t));
    }
    return 0;
}

int cl_tcpload_run(struct cl_tcpload *load, const struct cl_loadgen_phase *phases, unsigned n, char *err)
{
    uint32_t state = cl_load_acquire(&load->state); /* acquire: the client is done with the last run's phases */
    if (state != CL_TCPLOAD_IDLE && state != CL_TCPLOAD_FAILED) {
        refuse(err, "a run is under way");
        return -EBUSY;
    }
    if (n < 1 || n > CL_TCPLOAD_MAX_PHASES)
        return refuse(err, "a run has from 1 to 1024 phases");
    for (unsigned i = 0; i < n; i++)
        if (!(phases[i].rate >= 0 && phases[i].rate <= 1e9) || (phases[i].rate > 0 && phases[i].rate < 0.01) ||
            phases[i].duration_ns == 0 || phases[i].duration_ns > 86400000000000u)
            return refuse(err, "a phase lasts up to a day at 0, or at 0.01 to 1e9, requests a second");
    if (phases_set(load, phases, n)) {
        refuse(err, "out of memory for the histograms");
        return -ENOMEM;
    }
    cl_store_relaxed(&load->aborted, 0);
    cl_store_relaxed(&load->state, CL_TCPLOAD_ASKED);
    cl_store_release(&load->requested, load->requested + 1); /* release: the phases */
    if (load->wake)
        cl_park_wake(load->wake);
    return 0;
}

void cl_tcpload_aim(struct cl_tcpload *load, const uint8_t mac[6])
{
    memcpy(load->template.eth.dst, mac, 6);
}

void cl_tcpload_abort(struct cl_tcpload *load)
{
    cl_store_relaxed(&load->aborted, 1);
    if (load->wake)
        cl_park_wake(load->wake);
}

uint32_t cl_tcpload_state(const struct cl_tcpload *load)
{
    return cl_load_acquire(&load->state); /* acquire: the results, if it is IDLE */
}

void cl_tcpload_reason(const struct cl_tcpload *load, char reason[256])
{
    snprintf(reason, 256, "%u of %u connections to the server were opened", load->failed_with,
             load->config.connections);
}

uint32_t cl_tcpload_open(const struct cl_tcpload *load)
{
    return cl_load_relaxed(&load->n_open);
}

/* Counters that may be counting: each is whole, all together are not of one moment. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = cl_load_relaxed(&from[i]);
}

int cl_tcpload_counts(const struct cl_tcpload *load, unsigned phase, struct cl_tcpload_counts *out)
{
    if (phase >= load->n_phases)
        return -EINVAL;
    copy_words((uint64_t *)out, &load->phases[phase].counts.offered, sizeof *out / sizeof(uint64_t));
    return 0;
}

const struct cl_hist *cl_tcpload_latency(const struct cl_tcpload *load, unsigned phase)
{
    return phase < load->n_phases ? load->phases[phase].latency : NULL;
}

void cl_tcpload_other(const struct cl_tcpload *load, struct cl_tcpload_other *out)
{
    copy_words((uint64_t *)out, &load->other.segments_in, sizeof *out / sizeof(uint64_t));
}

static void look_at_time(struct cl_tcpload *load, uint64_t now)
{
    load->now_ms = (uint32_t)((uint64_t)cl_ticks_to_ns(load->clock, (int64_t)now) / 1000000);
}

/* Owed acknowledgements whose time has come are wanted now. */
static void ripen(struct cl_tcpload *load)
{
    while (ring_len(&load->later)) {
        struct conn *c = &load->conns[load->later.at[load->later.head & load->later.mask]];
        if ((c->flags & OWES) && before(load->now_ms, c->ack_ms))
            return;
        ring_pop(&load->later);
        c->flags &= (uint16_t)~IN_LATER;
        if ((c->flags & OWES) && c->state == OPEN) {
            c->flags |= NOW;
            cl_tcpload_queue(load, c);
        }
    }
}

CL_HOT unsigned cl_tcpload_due(struct cl_tcpload *load, uint64_t now, unsigned n)
{
    if (cl_unlikely(cl_load_relaxed(&load->requested) != load->obeyed || cl_load_relaxed(&load->aborted)))
        cl_tcpload_obey(load, now);
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    look_at_time(load, now);
    cl_tcpload_step(load, now);
    ripen(load);
    if ((++load->calls & 15) == 0)
        cl_tcpload_look_for_losses(load);
    unsigned control = load->n_owed + ring_len(&load->out);
    if (load->config.traffic == CL_TCPLOAD_SEND && control)
        return n; /* each connection may fill a burst */
    if (control < n)
        cl_tcpload_draw(load, now, n - control);
    unsigned due = control + load->n_pending;
    if (cl_unlikely(load->attack.kind) && due < n)
        due += cl_tcpload_attack_due(load, now, n - due);
    return cl_min(n, due);
}

CL_HOT unsigned cl_tcpload_generate(struct cl_tcpload *load, uint64_t now, struct cl_frame *frames, unsigned n)
{
    unsigned k = 0, taken = 0;
    look_at_time(load, now);
    while (k < n && load->n_owed)
        cl_tcpload_write_owed(load, &load->owed[--load->n_owed], &frames[k++]);
    while (taken < load->n_pending && ring_len(&load->idle)) {
        const struct pending *p = &load->pending[taken++];
        cl_tcpload_ask(load, &load->conns[ring_pop(&load->idle)], p->intended, p->phase, now);
    }
    load->n_pending -= taken;
    if (cl_unlikely(load->n_pending))
        memmove(load->pending, load->pending + taken, load->n_pending * sizeof *load->pending);
    for (uint32_t turns = ring_len(&load->out); turns && k < n; turns--) {
        struct conn *c = &load->conns[ring_pop(&load->out)];
        c->flags &= (uint16_t)~IN_OUT;
        k += cl_tcpload_emit(load, c, &frames[k], n - k);
        if (cl_unlikely(k == n) && c->state != CLOSED)
            cl_tcpload_queue(load, c); /* there may be more */
    }
    cl_count(&load->other.segments_out, k);
    if (cl_unlikely(load->attack.kind))
        k += cl_tcpload_attack_now(load, now, frames + k, n - k);
    return k;
}

CL_HOT void cl_tcpload_receive(struct cl_tcpload *load, uint64_t now, const struct cl_frame *frames, unsigned n)
{
    struct segment s;
    look_at_time(load, now);
    for (unsigned i = 0; i < n; i++)
        if (cl_unlikely(!cl_tcpload_read(load, &frames[i], &s)))
            continue;
        else if (cl_unlikely(s.attacker != NONE))
            cl_tcpload_attackers_take(load, &s);
        else
            cl_tcpload_take(load, &s, now);
}
