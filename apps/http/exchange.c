/* See exchange.h. */
#include "exchange.h"
#include "pieces.h"

#include <stdlib.h>

#define SPARES 64 /* of a kthread */
#define BODY_LEAST 4096

struct cl_http_exchange *cl_http_exchange_new(struct cl_http_service *s)
{
    struct cl_http_thread *t = cl_http_here(s);
    struct cl_http_exchange *x = t->spare;
    if (x) {
        t->spare = x->next_spare;
        cl_store_relaxed(&t->spares, t->spares - 1);
    } else if (!cl_http_charge(s, sizeof *x)) {
        return NULL;
    } else if (!(x = malloc(sizeof *x))) {
        cl_http_refund(s, sizeof *x);
        return NULL;
    }
    x->service = s;
    x->body = x->body_kept = NULL;
    x->body_len = x->body_room = 0;
    x->wants_body = x->closes = false;
    x->status = 0;
    x->span = NULL;
    x->span_len = 0;
    x->next = NULL;
    x->file = NULL;
    x->at = x->left = 0;
    x->piece = NULL;
    x->range = x->n_ranges = 0;
    x->route = NULL;
    x->early = 0;
    x->reply = NULL;
    x->reply_room = 0;
    x->answered = x->streams = false;
    x->head_len = 0;
    return x;
}

void cl_http_exchange_delete(struct cl_http_exchange *x)
{
    struct cl_http_service *s = x->service;
    cl_http_handler_end(x);
    struct cl_http_thread *t = cl_http_here(s);
    cl_http_request_end(&x->request);
    cl_http_file_put(x->file);
    cl_http_pieces_end(x);
    free(x->body_kept);
    if (x->body_room)
        cl_http_refund(s, x->body_room);
    if (t->spares >= SPARES) {
        free(x);
        cl_http_refund(s, sizeof *x);
        return;
    }
    x->next_spare = t->spare;
    t->spare = x;
    cl_store_relaxed(&t->spares, t->spares + 1);
}

/* Room for `need` bytes of the body. */
static bool grow(struct cl_http_exchange *x, uint64_t need)
{
    uint64_t known = x->request.sized ? x->request.length : 0;
    uint64_t room = cl_max(cl_max(known, cl_max(need, 2 * x->body_room)), (uint64_t)BODY_LEAST);
    room = cl_min(room, cl_max(x->service->options.body_most, need));
    if (!cl_http_charge(x->service, room - x->body_room))
        return false;
    uint8_t *fresh = realloc(x->body_kept, room);
    if (!fresh) {
        cl_http_refund(x->service, room - x->body_room);
        return false;
    }
    x->body_kept = fresh;
    x->body_room = room;
    return true;
}

int cl_http_exchange_keep(struct cl_http_exchange *x, const uint8_t *data, uint32_t len)
{
    if (x->body_len + len > x->service->options.body_most)
        return 413;
    if (!x->body_kept && x->body_len == 0 && x->request.sized && len == x->request.length) {
        x->body = data; /* all of it, where it lies until it is answered */
        x->body_len = len;
        return 0;
    }
    if (x->body_len + len > x->body_room && !grow(x, x->body_len + len))
        return 503;
    memcpy(x->body_kept + x->body_len, data, len);
    x->body = x->body_kept;
    x->body_len += len;
    return 0;
}

uint64_t cl_http_exchange_spare_bytes(const struct cl_http_thread *t)
{
    return cl_load_relaxed(&t->spares) * sizeof(struct cl_http_exchange);
}

void cl_http_exchange_free_spares(struct cl_http_thread *t)
{
    for (struct cl_http_exchange *x; (x = t->spare);) {
        t->spare = x->next_spare;
        free(x);
    }
    t->spares = 0;
}
