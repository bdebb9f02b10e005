/* memcached's protocol in front of a node: the framing of ../kv/udp.h, the commands through the log or as queries. */
#include "internal.h"
#include "../../kv/udp.h"
#include <stdio.h>
#include <string.h>

#define STATS_BYTES 512  /* of lines about the group */
#define READS (1u << 16) /* of a token's third word, beside the request's number: nothing was changed */

static void put_header(uint8_t *p, uint64_t request, uint32_t sequence, uint32_t total)
{
    const uint8_t header[CL_KV_UDP_HEADER] = {(uint8_t)(request >> 8), (uint8_t)request,      (uint8_t)(sequence >> 8),
                                              (uint8_t)sequence,       (uint8_t)(total >> 8), (uint8_t)total};
    memcpy(p, header, sizeof(header));
}

const char *serve_kv_error(int status, bool read)
{
    switch (status) {
    case CL_RAFT_BUSY:
        return "SERVER_ERROR too busy, nothing was done\r\n";
    case CL_RAFT_TOO_LARGE:
        return "SERVER_ERROR object too large for cache\r\n";
    case CL_RAFT_REPLY_TOO_LARGE:
        return "SERVER_ERROR out of memory writing get response\r\n";
    default:
        return read ? "SERVER_ERROR no leader, or it changed: ask again\r\n"
                    : "SERVER_ERROR no leader, or it changed: it may have been done or not\r\n";
    }
}

void serve_kv_answer(struct cl_raft_service *s, const struct cl_raft_token *token, int status, const uint8_t *reply,
                     uint32_t bytes)
{
    uint8_t datagram[CL_KV_UDP_DATAGRAM];
    struct cl_udp_addr to = {(uint32_t)(token->words[1] >> 16), (uint16_t)token->words[1], 0};
    if (status != CL_RAFT_OK) {
        reply = (const uint8_t *)serve_kv_error(status, token->words[2] & READS);
        bytes = (uint32_t)strlen((const char *)reply);
    }
    serve_traced(s, s->traced.kv, token->words[3], true);
    uint32_t piece = CL_KV_UDP_DATAGRAM - CL_KV_UDP_HEADER, total = (bytes + piece - 1) / piece;
    for (uint32_t i = 0; i < total; i++) {
        uint32_t n = cl_min(piece, bytes - i * piece);
        put_header(datagram, token->words[2], i, total);
        memcpy(datagram + CL_KV_UDP_HEADER, reply + i * piece, n);
        if (cl_udp_sendto(s->kv_socket, datagram, CL_KV_UDP_HEADER + n, &to) < 0) {
            cl_count(&s->count.not_sent, 1);
            return; /* nothing can be made of the rest */
        }
    }
    cl_count(&s->count.kv_answers, 1);
}

/* An answer that needs nobody else, into the request's own buffer. */
static void answer_here(struct cl_raft_service *s, struct cl_udp_req *req, const uint8_t *text, uint64_t bytes)
{
    if (req->room < (int64_t)bytes + CL_KV_UDP_HEADER)
        return;
    put_header(req->reply, (uint64_t)req->data[0] << 8 | req->data[1], 0, 1);
    memcpy(req->reply + CL_KV_UDP_HEADER, text, bytes);
    req->reply_len = (int64_t)bytes + CL_KV_UDP_HEADER;
    cl_count(&s->count.kv_answers, 1);
}

/* What any node answers by itself: version, and stats of its own. */
static void answer_local(struct cl_raft_service *s, struct cl_udp_req *req, const uint8_t *text, uint32_t bytes,
                         const struct cl_raft_token *token)
{
    const struct cl_raft_machine *m = &s->config.node.machine;
    uint8_t reply[STATS_BYTES + CL_KV_ANSWER_MAX];
    uint32_t begun = 0;
    if (bytes >= 7 && !memcmp(text, "stats\r\n", 7))
        begun = serve_admin_stats(s, (char *)reply, STATS_BYTES);
    int64_t n = m->query(m->arg, cl_raft_node_clock_ms(s->node), text, bytes, reply + begun, sizeof(reply) - begun);
    if (n <= 0)
        return;
    uint32_t all = begun + (uint32_t)n;
    if (req->room >= (int64_t)all + CL_KV_UDP_HEADER && all <= CL_KV_UDP_DATAGRAM - CL_KV_UDP_HEADER)
        answer_here(s, req, reply, all);
    else
        serve_kv_answer(s, token, CL_RAFT_OK, reply, all);
}

static void serve_kv_one(struct cl_raft_service *s, struct cl_udp_req *req)
{
    req->reply_len = 0;
    if (req->len <= CL_KV_UDP_HEADER || cl_kv_udp_is_answer(req->data, req->len)) {
        cl_count(&s->count.kv_refused, 1);
        return;
    }
    if (req->data[4] || req->data[5] != 1) {
        cl_count(&s->count.kv_refused, 1);
        answer_here(s, req, (const uint8_t *)CL_KV_UDP_MULTI, strlen(CL_KV_UDP_MULTI));
        return;
    }
    const uint8_t *text = req->data + CL_KV_UDP_HEADER;
    uint32_t bytes = (uint32_t)req->len - CL_KV_UDP_HEADER;
    enum raft_kv_way way = raft_kv_way(&s->kv, text, bytes);
    uint64_t request = (uint64_t)req->data[0] << 8 | req->data[1] | (way == RAFT_KV_READ ? READS : 0);
    struct cl_raft_token token = {{SERVE_KV_CLIENT, (uint64_t)req->peer.ipv4 << 16 | req->peer.port, request,
                                   way == RAFT_KV_LOCAL ? 0 : s->now_ns}};
    switch (way) {
    case RAFT_KV_LOCAL:
        answer_local(s, req, text, bytes, &token);
        break;
    case RAFT_KV_READ:
        cl_raft_node_query(s->node, text, bytes, &token);
        break;
    default:
        cl_raft_node_submit(s->node, CL_RAFT_APPLY, 0, CL_RAFT_LONG_ANSWER, text, bytes, &token);
    }
}

void serve_kv_burst(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    struct cl_raft_service *s = arg;
    serve_begin(s);
    s->kv_socket = reqs[0].socket;
    for (unsigned i = 0; i < n; i++)
        serve_kv_one(s, &reqs[i]);
    cl_count(&s->count.kv_requests, n);
    serve_poll(s);
    cl_raft_in_call_work(&s->in_call, s->now_ns, cl_sched_turn());
}
