/* The object: its making, its runs, its results. */
#include "engine.h"
#include "../../../drivers/nic/loadgen/loadgen.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LEAD_NS 200000 /* a run begins so long after it was asked for: its threads are there by then */
#define BY_ID_SLOTS (1u << 17)
#define MAX_CONNECTIONS (1u << 20)
#define PRELOAD_MOST 64

static int refuse(char *err, int rc, const char *text)
{
    snprintf(err, 256, "%s", text);
    return rc;
}

static bool is_power(uint64_t n)
{
    return n && !(n & (n - 1));
}

static uint32_t power_above(uint64_t n)
{
    uint32_t p = 1;
    while (p < n)
        p *= 2;
    return p;
}

static void set_defaults(struct cl_sockload_config *c)
{
    c->threads = c->threads ? c->threads : 1;
    c->connections = cl_max(c->connections, c->threads);
    c->depth = c->depth ? c->depth : 1;
    c->late_ns = c->late_ns ? c->late_ns : 10000;
    c->drain_ns = c->drain_ns ? c->drain_ns : 1000000000;
    c->connect_ns = c->connect_ns ? c->connect_ns : 10000000000ull;
    c->keys = c->keys ? c->keys : 1;
    c->scan_most = c->scan_most ? c->scan_most : 100;
    c->request_bytes = c->request_bytes ? c->request_bytes : 64;
    c->reply_bytes = c->reply_bytes ? c->reply_bytes : c->request_bytes;
    c->custom_room = c->custom_room ? c->custom_room : 65536;
}

static const char *wrong_with(const struct cl_sockload_config *c)
{
    if (c->threads > CL_SOCKLOAD_MAX_THREADS)
        return "at most 64 threads";
    if (c->connections > MAX_CONNECTIONS || c->depth > 65536)
        return "at most 1048576 connections, and 65536 requests on each";
    if (c->transport > CL_SOCKLOAD_UDP || c->protocol > CL_SOCKLOAD_CUSTOM)
        return "no such transport or protocol";
    if (c->transport == CL_SOCKLOAD_UDP && c->protocol != CL_SOCKLOAD_ECHO && c->protocol != CL_SOCKLOAD_CUSTOM)
        return "this protocol is asked over TCP";
    if (c->transport == CL_SOCKLOAD_UDP && c->fresh)
        return "UDP has no connections to be made for each request";
    if (c->protocol == CL_SOCKLOAD_CUSTOM && (!c->ask || !c->answer))
        return "custom requests need two functions";
    uint32_t head = sizeof(struct cl_sockload_head), most = c->transport == CL_SOCKLOAD_UDP ? 65507u : 64u << 20;
    if (c->request_bytes < head || c->reply_bytes < head || c->request_bytes > most || c->reply_bytes > most)
        return "an echo has 40 bytes or more, at most 65507 over UDP and 64 MiB over TCP";
    if (c->keys > UINT32_MAX || !(c->zipf >= 0 && c->zipf < 100))
        return "at most 4294967295 keys, with a Zipf exponent of 0 to 100";
    if (!is_power(c->n_key_bytes) || !is_power(c->n_value_bytes) || (c->hold_ns && !is_power(c->n_hold_ns)))
        return "tables of lengths have a power of two of entries";
    if (c->tls && c->transport == CL_SOCKLOAD_UDP)
        return "TLS goes over TCP";
    if (c->runtime && c->threads > 1)
        return "over the dataplane there is one thread of load";
    if (c->port == 0 || c->port > 65535)
        return "a port is 1 to 65535";
    return NULL;
}

static int set_server(struct cl_sockload *s, const char *address, uint32_t port, char *err)
{
    struct sockaddr_in *four = (struct sockaddr_in *)&s->server;
    struct sockaddr_in6 *six = (struct sockaddr_in6 *)&s->server;
    if (inet_pton(AF_INET, address, &four->sin_addr) == 1) {
        four->sin_family = AF_INET;
        four->sin_port = htons((uint16_t)port);
        s->server_bytes = sizeof(*four);
        return 0;
    }
    if (s->config.runtime)
        return refuse(err, -EINVAL, "the dataplane has IPv4 addresses only, and this is none");
    if (inet_pton(AF_INET6, address, &six->sin6_addr) == 1) {
        six->sin6_family = AF_INET6;
        six->sin6_port = htons((uint16_t)port);
        s->server_bytes = sizeof(*six);
        return 0;
    }
    return refuse(err, -EINVAL, "the address is no IPv4 or IPv6 address");
}

static void *copy(const void *from, uint64_t bytes)
{
    void *out = from ? malloc(bytes) : NULL;
    return out ? memcpy(out, from, bytes) : NULL;
}

static char *copy_text(const char *text)
{
    return text ? strdup(text) : NULL;
}

static int copy_tables(struct cl_sockload *s)
{
    struct cl_sockload_config *c = &s->config;
    s->key_bytes = copy(c->key_bytes, c->n_key_bytes * sizeof(*c->key_bytes));
    s->value_bytes = copy(c->value_bytes, c->n_value_bytes * sizeof(*c->value_bytes));
    s->hold_ns = copy(c->hold_ns, c->n_hold_ns * sizeof(*c->hold_ns));
    s->replay_ns = copy(c->replay_ns, c->n_replay * sizeof(*c->replay_ns));
    s->host = copy_text(c->host ? c->host : "localhost");
    s->path = copy_text(c->path ? c->path : "/");
    s->headers = copy_text(c->headers);
    s->greeting = copy_text(c->greeting);
    s->tls_host = copy_text(c->tls_host);
    for (uint32_t i = 0; s->value_bytes && i < c->n_value_bytes; i++)
        s->longest_value = cl_max(s->longest_value, s->value_bytes[i]);
    for (uint32_t i = 0; s->key_bytes && i < c->n_key_bytes; i++)
        s->key_bytes[i] = (uint16_t)cl_max(1, cl_min(s->key_bytes[i], 250));
    bool all = s->key_bytes && s->value_bytes && s->host && s->path && (s->hold_ns || !c->hold_ns) &&
               (s->replay_ns || !c->replay_ns);
    return all ? 0 : -ENOMEM;
}

static uint64_t text_room(const struct cl_sockload *s)
{
    const struct cl_sockload_config *c = &s->config;
    uint64_t room = (uint64_t)s->longest_value + 1024;
    uint64_t scan = (uint64_t)c->scan_most * (CL_SOCKLOAD_KEY_ROOM + 16) + 64;
    uint64_t http = strlen(s->path) + strlen(s->host) + (s->headers ? strlen(s->headers) : 0) + 1024;
    room = cl_max(room, cl_max(scan, http));
    return cl_max(room, cl_max((uint64_t)c->custom_room, (uint64_t)c->request_bytes));
}

static int init_hists(struct cl_hist **hists)
{
    for (unsigned i = 0; i < CL_SOCKLOAD_HISTS; i++)
        if (!(hists[i] = cl_hist_new(CL_HIST_DIGITS, CL_HIST_LIMIT_NS)))
            return -ENOMEM;
    return 0;
}

static int init_memory(struct cl_worker *w)
{
    struct cl_sockload *s = w->s;
    w->text_room = text_room(s);
    w->text = malloc(w->text_room);
    w->second_text = malloc(w->text_room);
    w->free_mask = power_above(w->n_conns + 1) - 1;
    w->free = calloc((size_t)w->free_mask + 1, sizeof(*w->free));
    w->conns = calloc(w->n_conns, sizeof(*w->conns));
    w->records_room = s->config.records / s->n_workers;
    w->records = calloc(w->records_room + 1, sizeof(*w->records));
    if (s->by_id) {
        w->by_id_mask = BY_ID_SLOTS - 1;
        w->by_id = calloc(BY_ID_SLOTS, sizeof(*w->by_id));
    }
    bool together = s->by_id && s->config.request_bytes <= CL_SOCKLOAD_TOGETHER_BYTES;
    w->together = together ? calloc(1, sizeof(*w->together)) : NULL;
    w->inbox = s->stream ? NULL : calloc(1, sizeof(*w->inbox));
    w->wire = s->tls ? malloc(CL_SOCKLOAD_WIRE_ROOM) : NULL;
    bool all = (w->inbox || s->stream) && (w->wire || !s->tls) && (w->together || !together) && w->text &&
               w->second_text && w->free && w->conns && w->records && (w->by_id || !s->by_id);
    return all ? init_hists(w->hists) : -ENOMEM;
}

static int init_worker(struct cl_sockload *s, uint32_t number)
{
    struct cl_worker *w = &s->workers[number];
    const struct cl_sockload_config *c = &s->config;
    w->s = s;
    w->number = number;
    w->n_conns = c->connections / s->n_workers + (number < c->connections % s->n_workers);
    w->random.state = cl_sockload_mix64(c->seed ^ (0x9e37ull + number));
    int rc = s->carrier->init(w);
    rc = rc ? rc : init_memory(w);
    for (uint32_t i = 0; !rc && i < w->n_conns; i++)
        rc = cl_sockload_conn_init(w, &w->conns[i], s->by_id ? 1 : s->ring_mask + 1);
    return rc ? rc : cl_sockload_due_init(&w->due, c, cl_sockload_mix64(c->seed + number));
}

static int init(struct cl_sockload *s, char *err)
{
    static const struct cl_protocol *const protocols[] = {&cl_sockload_protocol_echo, &cl_sockload_protocol_memcached,
                                                          &cl_sockload_protocol_resp, &cl_sockload_protocol_http,
                                                          &cl_sockload_protocol_custom};
    struct cl_sockload_config *c = &s->config;
    int rc = set_server(s, c->address, c->port, err);
    if (rc)
        return rc;
    s->clock = cl_clock_default();
    s->carrier = c->runtime ? &cl_sockload_dataplane : &cl_sockload_sockets;
    rc = c->tls ? cl_tls_client_new(c->tls == 1, c->tls_ca, &s->tls, err) : 0;
    if (rc)
        return rc;
    s->stream = c->transport == CL_SOCKLOAD_TCP;
    s->by_id = !s->stream && c->protocol == CL_SOCKLOAD_ECHO;
    if (c->fresh || (!s->stream && !s->by_id))
        c->depth = 1;
    s->protocol = protocols[c->protocol];
    s->ring_mask = power_above(cl_max(c->depth, (uint32_t)PRELOAD_MOST)) - 1;
    s->n_workers = c->threads;
    rc = copy_tables(s);
    rc = rc ? rc : init_hists(s->hists);
    s->workers = calloc(s->n_workers, sizeof(*s->workers));
    rc = rc ? rc : s->workers ? 0 : -ENOMEM;
    for (uint32_t i = 0; s->workers && i < s->n_workers; i++)
        s->workers[i].epoll = -1;
    for (uint32_t i = 0; !rc && i < s->n_workers; i++)
        rc = init_worker(s, i);
    if (rc)
        return refuse(err, rc, rc == -ENOMEM ? "not enough memory for so many connections" : "cannot set a thread up");
    cl_sockload_what_init(s);
    return 0;
}

int cl_sockload_new(const struct cl_sockload_config *config, struct cl_sockload **out, char *err)
{
    struct cl_sockload *s = calloc(1, sizeof(*s));
    if (!s)
        return refuse(err, -ENOMEM, "not enough memory");
    s->config = *config;
    set_defaults(&s->config);
    const char *wrong = wrong_with(&s->config);
    int rc = wrong ? refuse(err, -EINVAL, wrong) : init(s, err);
    if (rc) {
        cl_sockload_delete(s);
        return rc;
    }
    *out = s;
    return 0;
}

static void free_worker(struct cl_worker *w)
{
    if (w->conns)
        w->s->carrier->call(w, cl_sockload_worker_close, 0);
    for (uint32_t i = 0; w->conns && i < w->n_conns; i++)
        cl_sockload_conn_free(&w->conns[i]);
    if (w->s)
        w->s->carrier->free(w);
    for (unsigned i = 0; i < CL_SOCKLOAD_HISTS; i++)
        cl_hist_delete(w->hists[i]);
    cl_sockload_due_free(&w->due);
    void *all[] = {w->conns, w->free, w->by_id, w->inbox, w->together, w->text, w->second_text, w->records, w->wire};
    for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
}

void cl_sockload_delete(struct cl_sockload *s)
{
    char err[256];
    if (!s)
        return;
    cl_sockload_abort(s);
    cl_sockload_wait(s, err);
    for (uint32_t i = 0; s->workers && i < s->n_workers; i++)
        free_worker(&s->workers[i]);
    for (unsigned i = 0; i < CL_SOCKLOAD_HISTS; i++)
        cl_hist_delete(s->hists[i]);
    cl_tls_client_delete(s->tls);
    void *all[] = {s->workers, s->key_bytes, s->value_bytes, s->hold_ns,  s->replay_ns,
                   s->host,    s->path,      s->headers,     s->greeting, s->tls_host};
    for (unsigned i = 0; i < sizeof(all) / sizeof(*all); i++)
        free(all[i]);
    free(s);
}

int cl_sockload_connect(struct cl_sockload *s, char *err)
{
    if (s->config.fresh)
        return 0;
    cl_store_relaxed(&s->abort, 0);
    uint64_t deadline = cl_tsc() + (uint64_t)cl_ns_to_ticks(s->clock, (int64_t)s->config.connect_ns);
    for (uint32_t i = 0; i < s->n_workers; i++) {
        int rc = s->carrier->call(&s->workers[i], cl_sockload_worker_connect, deadline);
        if (rc) {
            snprintf(err, 256, "%u of %u connections are open, the next one failed: %.150s", cl_sockload_open(s),
                     s->config.connections,
                     s->workers[i].reason[0] ? s->workers[i].reason : strerror(rc == -ETIMEDOUT ? ETIMEDOUT : -rc));
            return rc;
        }
    }
    return 0;
}

/* Runs. */

static void clear(struct cl_worker *w)
{
    for (unsigned i = 0; i < CL_SOCKLOAD_HISTS; i++)
        cl_hist_reset(w->hists[i]);
    memset(&w->counts, 0, sizeof(w->counts));
    w->records_used = 0;
    w->measured = 0;
    w->error = 0;
    w->reason[0] = w->heard[0] = 0;
    w->prepared = w->starved = false;
    w->due.left = 0;
    cl_store_relaxed(&w->progress_sent, 0);
    cl_store_relaxed(&w->progress_answered, 0);
}

static int start(struct cl_sockload *s, char *err)
{
    int rc = 0;
    cl_store_relaxed(&s->finished, 0);
    cl_store_relaxed(&s->abort, 0);
    for (; s->running < s->n_workers && !rc; s->running += !rc)
        rc = s->carrier->start(&s->workers[s->running], cl_sockload_worker_main);
    if (!rc)
        return 0;
    cl_sockload_abort(s);
    cl_sockload_wait(s, err);
    return refuse(err, -rc, "cannot start a thread");
}

/* Connections that ended since are opened again; a run can do with fewer, and not without any. */
static int make_ready(struct cl_sockload *s, char *err)
{
    if (s->running)
        return refuse(err, -EBUSY, "a run is under way");
    int rc = cl_sockload_connect(s, err);
    if (rc && (rc == -EPROTO || !cl_sockload_open(s)))
        return rc;
    for (uint32_t i = 0; i < s->n_workers; i++)
        clear(&s->workers[i]);
    return 0;
}

int cl_sockload_preload(struct cl_sockload *s, uint32_t depth, char *err)
{
    int rc = make_ready(s, err);
    if (rc)
        return rc;
    if (s->config.protocol != CL_SOCKLOAD_MEMCACHED && s->config.protocol != CL_SOCKLOAD_RESP)
        return refuse(err, -EINVAL, "this protocol stores no keys");
    s->mode = CL_MODE_PRELOAD;
    s->depth = cl_max(1u, cl_min(depth, (uint32_t)PRELOAD_MOST));
    s->window = 0;
    s->record_stride = 0;
    s->start = cl_tsc();
    s->end = s->drain_end = s->warm_end = CL_SOCKLOAD_NEVER;
    for (uint32_t i = 0; i < s->n_workers; i++)
        s->workers[i].preload_next = i;
    return start(s, err);
}

int cl_sockload_run(struct cl_sockload *s, double rate, uint64_t warm_ns, uint64_t measured_ns, uint32_t window,
                    char *err)
{
    int rc = make_ready(s, err);
    if (rc)
        return rc;
    if (!s->replay_ns && !window && !(rate > 0 && rate <= 1e9))
        return refuse(err, -EINVAL, "a rate is above 0 and at most 10^9 requests a second");
    s->mode = CL_MODE_RUN;
    s->depth = s->config.depth;
    s->window = window;
    s->rate = rate;
    double expected = rate * (double)(warm_ns + measured_ns) * 1e-9 / CL_SOCKLOAD_BLOCK;
    double kept = (double)s->config.records / CL_SOCKLOAD_BLOCK;
    if (s->replay_ns)
        expected = (double)s->config.n_replay / CL_SOCKLOAD_BLOCK;
    s->record_stride = kept >= 1 ? (uint64_t)cl_max(1.0, __builtin_ceil(expected * 1.1 / kept)) : 0;
    s->start = cl_tsc() + (uint64_t)cl_ns_to_ticks(s->clock, LEAD_NS);
    s->warm_end = s->start + (uint64_t)cl_ns_to_ticks(s->clock, (int64_t)warm_ns);
    s->end = s->warm_end + (uint64_t)cl_ns_to_ticks(s->clock, (int64_t)measured_ns);
    s->drain_end = s->end + (uint64_t)cl_ns_to_ticks(s->clock, (int64_t)s->config.drain_ns);
    return start(s, err);
}

int cl_sockload_done(struct cl_sockload *s)
{
    /* acquire: pairs with the workers' release, so that whoever sees them all done reads their results */
    return cl_load_acquire(&s->finished) >= s->running;
}

static void merge(struct cl_sockload *s)
{
    struct cl_sockload_counts c;
    for (unsigned i = 0; i < CL_SOCKLOAD_HISTS; i++) {
        cl_hist_reset(s->hists[i]);
        for (uint32_t k = 0; k < s->n_workers; k++)
            cl_hist_merge(s->hists[i], s->workers[k].hists[i]);
    }
    cl_sockload_counts(s, &c);
    cl_hist_add_infinite(s->hists[CL_SOCKLOAD_LATENCY], c.offered - c.answered);
}

int cl_sockload_wait(struct cl_sockload *s, char *err)
{
    int rc = 0;
    if (!s->running)
        return 0;
    for (uint32_t i = 0; i < s->running; i++) {
        struct cl_worker *w = &s->workers[i];
        s->carrier->join(w);
        if (w->error && !rc) {
            rc = w->error;
            snprintf(err, 256, "%.140s%s%s", w->reason[0] ? w->reason : strerror(-rc), w->heard[0] ? "; it said: " : "",
                     w->heard);
        }
    }
    s->running = 0;
    merge(s);
    return rc;
}

void cl_sockload_abort(struct cl_sockload *s)
{
    cl_store_relaxed(&s->abort, 1); /* relaxed: a wish; each worker's loop sees it soon */
}

void cl_sockload_progress(const struct cl_sockload *s, uint64_t *sent, uint64_t *answered)
{
    *sent = *answered = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        *sent += cl_load_relaxed(&s->workers[i].progress_sent);
        *answered += cl_load_relaxed(&s->workers[i].progress_answered);
    }
}

uint32_t cl_sockload_open(const struct cl_sockload *s)
{
    uint64_t open = 0;
    for (uint32_t i = 0; i < s->n_workers; i++)
        open += cl_load_relaxed(&s->workers[i].open);
    return (uint32_t)open;
}

/* Results. */

void cl_sockload_counts(const struct cl_sockload *s, struct cl_sockload_counts *out)
{
    *out = (struct cl_sockload_counts){.first_ns = CL_SOCKLOAD_NEVER};
    uint64_t *sum = (uint64_t *)out;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const struct cl_sockload_counts *c = &s->workers[i].counts;
        uint64_t first = c->last_ns ? cl_min(out->first_ns, c->first_ns) : out->first_ns;
        uint64_t last = cl_max(out->last_ns, c->last_ns);
        for (unsigned k = 0; k < sizeof(*c) / sizeof(uint64_t); k++)
            sum[k] += ((const uint64_t *)c)[k];
        out->first_ns = first;
        out->last_ns = last;
    }
    out->first_ns = out->last_ns ? out->first_ns : 0;
}

const struct cl_hist *cl_sockload_hist(const struct cl_sockload *s, unsigned which)
{
    return which < CL_SOCKLOAD_HISTS ? s->hists[which] : NULL;
}

uint64_t cl_sockload_records(const struct cl_sockload *s, struct cl_sockload_record *out, uint64_t room)
{
    uint64_t n = 0;
    for (uint32_t i = 0; i < s->n_workers; i++) {
        const struct cl_worker *w = &s->workers[i];
        uint64_t take = cl_min(w->records_used, room - n);
        memcpy(out + n, w->records, take * sizeof(*out));
        n += take;
    }
    return n;
}

const char *cl_sockload_heard(const struct cl_sockload *s)
{
    for (uint32_t i = 0; i < s->n_workers; i++)
        if (s->workers[i].heard[0])
            return s->workers[i].heard;
    return "";
}

unsigned cl_sockload_key(const struct cl_sockload *s, uint64_t key, uint8_t *out)
{
    return cl_sockload_key_write(s, key, out);
}

unsigned cl_sockload_value(const struct cl_sockload *s, uint64_t key, uint8_t *out, uint32_t room)
{
    uint32_t n = cl_sockload_value_bytes(s, key);
    if (n <= room)
        cl_sockload_value_write(key, out, n);
    return n;
}

static struct cl_request example(uint32_t op, uint64_t key, uint32_t count)
{
    return (struct cl_request){.id = key, .key = key, .op = (uint8_t)op, .count = count ? count : 1};
}

int64_t cl_sockload_judge(const struct cl_sockload *s, uint32_t op, uint64_t key, uint32_t count, const uint8_t *in,
                          uint32_t n, uint32_t *worth)
{
    struct cl_request r = example(op, key, count);
    uint32_t need = 0;
    return s->protocol->read(s, &r, in, n, false, worth, &need);
}

int64_t cl_sockload_write(const struct cl_sockload *s, uint32_t op, uint64_t key, uint32_t count, uint8_t *out,
                          uint32_t room)
{
    struct cl_request r = example(op, key, count);
    return s->protocol->write(s, &r, out, room);
}
