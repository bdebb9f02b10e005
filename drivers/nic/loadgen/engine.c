/* The engine's life, its control by another thread, and the three calls of its own thread: due, generate, receive. */
#include "engine.h"

#include <stdio.h>
#include <stdlib.h>

static int refuse(char *err, const char *why)
{
    if (err)
        snprintf(err, 256, "%s", why);
    return -EINVAL;
}

static bool power_of_two(uint32_t n)
{
    return n && !(n & (n - 1));
}

#define OR(value, otherwise) ((value) = (value) ? (value) : (otherwise))

static int settle_config(struct cl_loadgen_config *c, char *err)
{
    OR(c->ip, 0x0a4d0001u);
    OR(c->server_ip, 0x0a4d0002u);
    OR(c->server_port, 9000);
    OR(c->first_port, 20000);
    OR(c->flows, 64);
    OR(c->ips, 1);
    OR(c->outstanding, cl_min(262144u, 65536 * cl_min(c->flows, 4u)));
    OR(c->burst, 16);
    OR(c->window, 64);
    OR(c->late_ns, 10000);
    OR(c->drain_ns, 50000000);
    OR(c->give_up_ns, 5000000000u);
    OR(c->payload_bytes, 22);
    OR(c->keys, 1000000);
    OR(c->key_bytes, 16);
    OR(c->value_bytes, 64);
    OR(c->preload_window, 64);
    if (cl_get32(c->mac) == 0 && cl_get16(c->mac + 4) == 0)
        memcpy(c->mac, (uint8_t[6]){2, 0, 0, 0, 0, 1}, 6);
    if (c->traffic > CL_LOAD_MEMCACHED)
        return refuse(err, "unknown traffic");
    if (!power_of_two(c->flows) || c->flows > 16384 || c->first_port + c->flows > 65536)
        return refuse(err, "flows must be a power of two up to 16384, with first_port + flows at most 65536");
    if (!power_of_two(c->ips) || c->ips > c->flows)
        return refuse(err, "ips must be a power of two, at most flows");
    /* With fewer names than slots, two outstanding memcached requests could have the same port and id. */
    if (!power_of_two(c->outstanding) || c->outstanding < 256 || c->outstanding > 1u << 24 ||
        c->outstanding / 65536 > c->flows)
        return refuse(err, "outstanding must be a power of two from 256 to 2^24, and at most 65536 for each flow");
    if (c->window > c->outstanding)
        return refuse(err, "window must not be larger than outstanding");
    if (!(c->long_fraction >= 0 && c->long_fraction <= 1) || c->service_ns > 1000000000 || c->long_ns > 1000000000)
        return refuse(err, "long_fraction must be from 0 to 1, service times up to 1e9 ns");
    if (!power_of_two(c->preload_window) || c->preload_window > c->outstanding)
        return refuse(err, "preload_window must be a power of two, at most outstanding");
    if (c->traffic != CL_LOAD_MEMCACHED)
        c->preload = 0;
    return 0;
}

static int build(struct cl_loadgen *lg, char *err)
{
    struct cl_loadgen_config *c = &lg->config;
    lg->clock = c->clock ? c->clock : cl_clock_default();
    lg->flow_mask = c->flows - 1;
    lg->flow_shift = (uint32_t)__builtin_ctz(c->flows);
    lg->slot_mask = c->outstanding - 1;
    lg->ip = c->ip;
    lg->server_ip_be = cl_be32(c->server_ip);
    lg->server_port_be = cl_be16(c->server_port);
    lg->resolved = cl_get32(c->server_mac) != 0 || cl_get16(c->server_mac + 4) != 0;
    lg->late_ticks = (uint64_t)cl_ns_to_ticks(lg->clock, (int64_t)c->late_ns);
    lg->drain_ticks = (uint64_t)cl_ns_to_ticks(lg->clock, (int64_t)c->drain_ns);
    lg->give_up_ticks = (uint64_t)cl_ns_to_ticks(lg->clock, (int64_t)c->give_up_ns);
    lg->resend_ticks = (uint64_t)cl_ns_to_ticks(lg->clock, 20000000);
    lg->random.state = c->seed;
    lg->next_tsc = CL_NEVER;
    lg->next_seq = 1;
    lg->slots = aligned_alloc(CL_CACHELINE, (size_t)c->outstanding * sizeof(*lg->slots));
    if (!lg->slots)
        return -ENOMEM;
    memset(lg->slots, 0, (size_t)c->outstanding * sizeof(*lg->slots));
    int rc = cl_gaps_draw(&lg->gaps, c->arrivals, c->seed, c->burst, c->duty);
    if (rc == -EINVAL)
        refuse(
            err,
            "arrivals must be poisson, uniform, bursty (with a burst of 1 or more and a duty from 0 to 1) or closed");
    if (rc)
        return rc;
    lg->gap_shift = lg->gaps.shift + 24 - 16;
    return c->traffic == CL_LOAD_ECHO ? cl_echo_init(lg, err) : cl_memcached_init(lg, err);
}

int cl_loadgen_new(const struct cl_loadgen_config *config, struct cl_loadgen **out, char *err)
{
    struct cl_loadgen_config c = *config;
    char unread[256];
    err = err ? err : unread;
    int rc = settle_config(&c, err);
    if (rc)
        return rc;
    struct cl_loadgen *lg = aligned_alloc(CL_CACHELINE, sizeof(*lg));
    if (lg) {
        memset(lg, 0, sizeof(*lg));
        lg->config = c;
        rc = build(lg, err);
    } else {
        rc = -ENOMEM;
    }
    if (rc) {
        if (rc == -ENOMEM)
            refuse(err, "out of memory for the load generator's tables");
        cl_loadgen_delete(lg);
        return rc;
    }
    *out = lg;
    return 0;
}

static void phases_free(struct cl_loadgen *lg)
{
    for (uint32_t i = 0; i < lg->n_phases; i++)
        if (!lg->phases[i].shares) {
            cl_hist_delete(lg->phases[i].latency);
            cl_hist_delete(lg->phases[i].latency_long);
        }
    free(lg->phases);
    lg->phases = NULL;
    lg->n_phases = 0;
}

void cl_loadgen_delete(struct cl_loadgen *lg)
{
    if (!lg)
        return;
    phases_free(lg);
    cl_echo_free(lg);
    cl_memcached_free(lg);
    cl_gaps_free(&lg->gaps);
    free(lg->slots);
    free(lg);
}

/* Give phase i its histograms: those of the first phase of its series, or new ones. */
static int phase_measure(struct cl_loadgen *lg, const struct cl_loadgen_phase *phases, unsigned i)
{
    struct cl_phase *made = lg->phases;
    unsigned first = 0;
    while (first < i && !(phases[i].series && phases[first].measured && phases[first].series == phases[i].series))
        first++;
    if (first < i) {
        made[i].latency = made[first].latency;
        made[i].latency_long = made[first].latency_long;
        made[i].shares = true;
        return 0;
    }
    made[i].latency = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    if (lg->echo.items)
        made[i].latency_long = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS);
    if (!made[i].latency || (lg->echo.items && !made[i].latency_long))
        return -ENOMEM;
    if (phases[i].series) /* its requests are not to wait for fresh pages */
        memset(cl_hist_counts(made[i].latency), 0, made[i].latency->n_buckets * sizeof(uint64_t));
    return 0;
}

static int phases_set(struct cl_loadgen *lg, const struct cl_loadgen_phase *phases, unsigned n)
{
    struct cl_phase *made = calloc(n, sizeof(*made));
    if (!made)
        return -ENOMEM;
    phases_free(lg);
    lg->phases = made;
    lg->n_phases = n;
    for (unsigned i = 0; i < n; i++) {
        double hz = (double)lg->clock->hz;
        made[i].end_tsc = (uint64_t)cl_ns_to_ticks(lg->clock, (int64_t)phases[i].duration_ns);
        made[i].mean_gap = phases[i].rate > 0 ? (uint64_t)(hz / phases[i].rate * (1 << 24) + 0.5) : 0;
        if (phases[i].measured && phase_measure(lg, phases, i))
            return -ENOMEM;
    }
    return 0;
}

static int start(struct cl_loadgen *lg, const struct cl_loadgen_phase *phases, unsigned n,
                 struct cl_loadgen_replay *replay, char *err)
{
    uint32_t state = cl_load_acquire(&lg->state); /* acquire: the engine is done with the last run's phases */
    if (state != CL_LOAD_IDLE && state != CL_LOAD_FAILED) {
        refuse(err, "a run is under way");
        return -EBUSY;
    }
    if (n < 1 || n > CL_LOAD_MAX_PHASES)
        return refuse(err, "a run has from 1 to 1024 phases");
    for (unsigned i = 0; i < n; i++)
        if (!(phases[i].rate >= 0 && phases[i].rate <= 1e9) || (phases[i].rate > 0 && phases[i].rate < 0.01) ||
            phases[i].duration_ns == 0 || phases[i].duration_ns > 86400000000000u)
            return refuse(err, "a phase lasts up to a day at 0, or at 0.01 to 1e9, requests a second");
    if (phases_set(lg, phases, n)) {
        refuse(err, "out of memory for the histograms");
        return -ENOMEM;
    }
    lg->replay = replay;
    cl_store_relaxed(&lg->aborted, 0);
    /* Not yet RESOLVING: the engine's thread would act on it, and then again on the request. */
    cl_store_relaxed(&lg->state, CL_LOAD_ASKED);
    cl_store_release(&lg->requested, lg->requested + 1); /* release: the phases */
    if (lg->wake)
        cl_park_wake(lg->wake);
    return 0;
}

int cl_loadgen_run(struct cl_loadgen *lg, const struct cl_loadgen_phase *phases, unsigned n, char *err)
{
    return start(lg, phases, n, NULL, err);
}

int cl_loadgen_replay(struct cl_loadgen *lg, struct cl_loadgen_replay *replay, char *err)
{
    if (replay->n == 0)
        return refuse(err, "there is no request to replay");
    if (!lg->echo.serves || lg->config.arrivals == CL_ARRIVALS_CLOSED)
        return refuse(err, "a replay takes echo traffic whose requests say what to spend, and an open loop");
    replay->n_gaps = 0;
    memset(replay->sent_ns, 0, replay->n * sizeof *replay->sent_ns);
    memset(replay->answered_ns, 0, replay->n * sizeof *replay->answered_ns);
    const struct cl_loadgen_phase whole = {.duration_ns = replay->at_ns[replay->n - 1] + 1, .rate = 1};
    return start(lg, &whole, 1, replay, err);
}

void cl_loadgen_abort(struct cl_loadgen *lg)
{
    cl_store_relaxed(&lg->aborted, 1);
    if (lg->wake)
        cl_park_wake(lg->wake);
}

uint32_t cl_loadgen_state(const struct cl_loadgen *lg)
{
    return cl_load_acquire(&lg->state); /* acquire: the results, if it is IDLE */
}

const char *cl_loadgen_reason(const struct cl_loadgen *lg)
{
    return lg->reason;
}

/* Counters that may be counting: each is whole, all together are not of one moment. */
static void copy_words(uint64_t *to, const uint64_t *from, size_t n)
{
    for (size_t i = 0; i < n; i++)
        to[i] = cl_load_relaxed(&from[i]);
}

int cl_loadgen_counts(const struct cl_loadgen *lg, unsigned phase, struct cl_loadgen_counts *out)
{
    if (phase >= lg->n_phases)
        return -EINVAL;
    copy_words((uint64_t *)out, &lg->phases[phase].counts.offered, sizeof(*out) / sizeof(uint64_t));
    return 0;
}

const struct cl_hist *cl_loadgen_latency(const struct cl_loadgen *lg, unsigned phase)
{
    return phase < lg->n_phases ? lg->phases[phase].latency : NULL;
}

const struct cl_hist *cl_loadgen_latency_long(const struct cl_loadgen *lg, unsigned phase)
{
    return phase < lg->n_phases ? lg->phases[phase].latency_long : NULL;
}

void cl_loadgen_other(const struct cl_loadgen *lg, struct cl_loadgen_other *out)
{
    copy_words((uint64_t *)out, &lg->other.stray, sizeof(*out) / sizeof(uint64_t));
}

/* Who polls the engine is here. */
static CL_NOINLINE void note_look(struct cl_loadgen *lg, uint64_t now)
{
    struct cl_loadgen_replay *r = lg->replay;
    uint64_t ns = (uint64_t)cl_ticks_to_ns(lg->clock, (int64_t)(now - lg->looked_tsc));
    if (ns >= CL_LOAD_GAP_NS && lg->looked_tsc >= lg->run_tsc && r->n_gaps < r->room) {
        r->gap_at_ns[r->n_gaps] = cl_run_ns(lg, lg->looked_tsc);
        r->gap_ns[r->n_gaps++] = ns;
    }
    lg->looked_tsc = now;
}

CL_HOT unsigned cl_loadgen_due(struct cl_loadgen *lg, uint64_t now, unsigned n)
{
    if (cl_unlikely(cl_load_relaxed(&lg->requested) != lg->obeyed || cl_load_relaxed(&lg->aborted)))
        cl_run_obey(lg, now);
    if (cl_unlikely(now < lg->run_tsc || lg->sched == NULL || now >= lg->sched->end_tsc ||
                    cl_state(lg) != CL_LOAD_RUNNING))
        cl_run_step(lg, now);
    /* The state first: without a run, whoever asks for the next one may write lg->replay meanwhile. */
    if (cl_state(lg) == CL_LOAD_RUNNING && cl_unlikely(lg->replay != NULL))
        note_look(lg, now);
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    if (cl_unlikely(cl_state(lg) == CL_LOAD_PRELOADING))
        return cl_min(n, lg->n_arp + cl_preload_due(lg, now, n));
    if (cl_unlikely(lg->config.arrivals == CL_ARRIVALS_CLOSED)) {
        if (cl_state(lg) == CL_LOAD_RUNNING && lg->next_tsc != CL_NEVER && now >= lg->run_tsc)
            return cl_min(n, lg->n_arp + lg->config.window - lg->window_used);
    } else {
        while (lg->n_pending < n && lg->next_tsc <= now)
            lg->pending[lg->n_pending++] = cl_schedule_next(lg);
    }
    unsigned arp = lg->n_arp + (cl_state(lg) == CL_LOAD_RESOLVING && now >= lg->arp_next_tsc);
    return cl_min(n, lg->n_pending + arp);
}

/* Write one request, the next in sequence. */
static inline void emit(struct cl_loadgen *lg, uint64_t now, uint64_t intended, struct cl_frame *frame)
{
    uint32_t seq = (uint32_t)lg->next_seq;
    struct cl_phase *phase = lg->sending, *last = lg->phases + lg->n_phases - 1;
    while (cl_unlikely(phase < last && lg->next_seq >= phase[1].first_seq))
        lg->sending = ++phase;
    lg->next_seq++;
    lg->sent++;
    cl_count(&phase->counts.sent, 1);
    uint64_t lateness = now - intended;
    if (cl_unlikely(lateness > lg->late_ticks)) {
        uint64_t ns = (uint64_t)cl_ticks_to_ns(lg->clock, (int64_t)lateness);
        cl_count(&phase->counts.late, 1);
        cl_store_relaxed(&phase->counts.late_max_ns, cl_max(phase->counts.late_max_ns, ns));
    }
    uint32_t item = 0;
    if (lg->config.traffic == CL_LOAD_ECHO) {
        item = lg->echo.items ? lg->echo.items[seq & (CL_ITEMS - 1)] : 0;
        if (cl_unlikely(lg->replay)) {
            item = CL_ITEM_GIVEN;
            lg->replay->sent_ns[cl_replay_at(lg, seq)] = cl_run_ns(lg, now);
        }
        if (cl_unlikely(item == CL_ITEM_LONG))
            cl_count(&phase->counts.sent_long, 1);
        cl_echo_fill(lg, frame, seq, item);
    } else {
        item = lg->memcached.items[seq & (CL_ITEMS - 1)];
        cl_memcached_fill(lg, frame, seq, item);
    }
    lg->slots[seq & lg->slot_mask] = (struct cl_slot){intended, seq, item};
}

static unsigned generate_closed(struct cl_loadgen *lg, uint64_t now, struct cl_frame *frames, unsigned n)
{
    unsigned k = 0;
    for (; k < n && lg->window_used < lg->config.window; k++) {
        lg->window_used++;
        lg->offered++;
        cl_count(&lg->sched->counts.offered, 1);
        emit(lg, now, now, &frames[k]);
    }
    return k;
}

static unsigned generate_preload(struct cl_loadgen *lg, uint64_t now, struct cl_frame *frames, unsigned n)
{
    uint32_t keys[CL_NIC_BURST];
    unsigned k = cl_preload_take(lg, keys, cl_min(n, (unsigned)CL_NIC_BURST));
    for (unsigned i = 0; i < k; i++) {
        uint32_t seq = (uint32_t)lg->next_seq++, item = keys[i] | CL_ITEM_SET;
        lg->slots[seq & lg->slot_mask] = (struct cl_slot){now, seq, item};
        cl_memcached_fill(lg, &frames[i], seq, item);
    }
    return k;
}

CL_HOT unsigned cl_loadgen_generate(struct cl_loadgen *lg, uint64_t now, struct cl_frame *frames, unsigned n)
{
    unsigned k = 0;
    if (cl_unlikely(lg->n_arp || cl_state(lg) != CL_LOAD_RUNNING)) {
        k = cl_wire_arp(lg, now, frames, n);
        if (cl_state(lg) == CL_LOAD_PRELOADING)
            return k + generate_preload(lg, now, frames + k, n - k);
    }
    if (cl_unlikely(lg->config.arrivals == CL_ARRIVALS_CLOSED))
        return cl_state(lg) == CL_LOAD_RUNNING && lg->next_tsc != CL_NEVER
                   ? k + generate_closed(lg, now, frames + k, n - k)
                   : k;
    unsigned take = cl_min(n - k, lg->n_pending);
    for (unsigned i = 0; i < take; i++)
        emit(lg, now, lg->pending[i], &frames[k + i]);
    lg->n_pending -= take;
    if (cl_unlikely(lg->n_pending)) /* no buffer was left for these: they are late now */
        memmove(lg->pending, lg->pending + take, lg->n_pending * sizeof(*lg->pending));
    return k + take;
}

/* Whether the frame is a datagram from the server to one of our flows; then its payload and flow. */
static inline bool parse(const struct cl_loadgen *lg, const struct cl_frame *frame, uint32_t *len, uint32_t *flow)
{
    const struct cl_udp_frame *f = (const struct cl_udp_frame *)frame->data;
    if (frame->len < CL_UDP_HEADERS || f->eth.type_be != cl_be16(CL_ETHERTYPE_IPV4) || f->ip.version_ihl != 0x45 ||
        f->ip.proto != CL_IPPROTO_UDP || (f->ip.frag_be & cl_be16(CL_IPV4_MF | CL_IPV4_OFFSET_MASK)))
        return false;
    uint32_t total = cl_be16(f->ip.total_len_be), udp_len = cl_be16(f->udp.len_be);
    *flow = (uint32_t)cl_be16(f->udp.dst_port_be) - lg->config.first_port;
    if (f->ip.src_be != lg->server_ip_be || f->udp.src_port_be != lg->server_port_be || *flow > lg->flow_mask ||
        f->ip.dst_be != cl_own_ip_be(lg, *flow))
        return false;
    if (total + CL_ETH_HLEN > frame->len || udp_len < CL_UDP_HLEN || udp_len + CL_IPV4_HLEN > total)
        return false;
    *len = udp_len - CL_UDP_HLEN;
    return true;
}

CL_HOT void cl_loadgen_receive(struct cl_loadgen *lg, uint64_t now, const struct cl_frame *frames, unsigned n)
{
    bool echo = lg->config.traffic == CL_LOAD_ECHO;
    for (unsigned i = 0; i < n; i++) {
        uint32_t len, flow, state = cl_state(lg);
        if (cl_unlikely(!parse(lg, &frames[i], &len, &flow))) {
            cl_wire_other(lg, &frames[i]);
            continue;
        }
        if (cl_unlikely(state == CL_LOAD_IDLE || state >= CL_LOAD_FAILED || state == CL_LOAD_RESOLVING)) {
            cl_count(&lg->other.stray, 1);
            continue;
        }
        const uint8_t *payload = frames[i].data + CL_UDP_HEADERS;
        if (echo)
            cl_echo_take(lg, now, payload, len, flow);
        else
            cl_memcached_take(lg, now, payload, len, flow);
    }
}

uint64_t cl_loadgen_next_tsc(const struct cl_loadgen *lg)
{
    switch (cl_state(lg)) {
    case CL_LOAD_ASKED:
        return 0;
    case CL_LOAD_RESOLVING:
        return cl_min(lg->arp_next_tsc, lg->arp_until_tsc);
    case CL_LOAD_PRELOADING:
        return lg->preload.progress_tsc + lg->resend_ticks;
    case CL_LOAD_RUNNING:
    case CL_LOAD_DRAINING:
        if (lg->n_pending)
            return 0;
        if (lg->config.arrivals == CL_ARRIVALS_CLOSED && lg->next_tsc != CL_NEVER)
            return lg->window_used < lg->config.window ? 0 : lg->sched->end_tsc;
        if (lg->next_tsc != CL_NEVER)
            return lg->next_tsc;
        return lg->phases[lg->n_phases - 1].end_tsc + (lg->settled == lg->sent ? 0 : lg->drain_ticks + 1);
    default:
        return CL_NEVER;
    }
}
