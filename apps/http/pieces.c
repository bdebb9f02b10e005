/* See pieces.h. */
#include "pieces.h"

#include <stdio.h>
#include <stdlib.h>

#define PIECE_BYTES (128u << 10)

static bool has_memory(struct cl_http_exchange *x)
{
    if (x->file->data || x->piece)
        return true;
    if (!cl_http_charge(x->service, PIECE_BYTES))
        return false;
    x->piece = malloc(PIECE_BYTES);
    if (!x->piece)
        cl_http_refund(x->service, PIECE_BYTES);
    return x->piece != NULL;
}

void cl_http_pieces_end(struct cl_http_exchange *x)
{
    if (!x->piece)
        return;
    free(x->piece);
    x->piece = NULL;
    cl_http_refund(x->service, PIECE_BYTES);
}

static int next_piece(struct cl_http_exchange *x)
{
    if (x->left == 0)
        return CL_HTTP_END;
    uint64_t len = x->left;
    if (x->file->data) {
        x->span = x->file->data + x->at;
    } else {
        len = cl_min(len, (uint64_t)PIECE_BYTES);
        if (cl_http_cache_read(x->service->cache, x->file, x->piece, x->at, len))
            return CL_HTTP_FAILED;
        x->span = x->piece;
    }
    x->span_len = len;
    x->at += len;
    x->left -= len;
    return CL_HTTP_SPAN;
}

bool cl_http_pieces_begin(struct cl_http_exchange *x)
{
    x->next = next_piece;
    return has_memory(x);
}

/* Parts (RFC 9110, section 14.6). */

/* The lines in front of a part, or behind the last one. Returns their length. */
static int part_head(const struct cl_http_exchange *x, unsigned i, char *to, size_t room)
{
    const struct cl_http_range *r = &x->ranges[i];
    if (i == x->n_ranges)
        return snprintf(to, room, "\r\n--%s--\r\n", x->boundary);
    return snprintf(to, room, "\r\n--%s\r\nContent-Type: %s\r\nContent-Range: bytes %llu-%llu/%llu\r\n\r\n",
                    x->boundary, x->file->type, (unsigned long long)r->from, (unsigned long long)(r->from + r->len - 1),
                    (unsigned long long)x->file->size);
}

static int next_of_parts(struct cl_http_exchange *x)
{
    if (x->left)
        return next_piece(x);
    if (x->range > x->n_ranges)
        return CL_HTTP_END;
    x->span = (const uint8_t *)x->head; /* which has left */
    x->span_len = (uint64_t)part_head(x, x->range, x->head, sizeof x->head);
    if (x->range < x->n_ranges) {
        x->at = x->ranges[x->range].from;
        x->left = x->ranges[x->range].len;
    }
    x->range++;
    return CL_HTTP_SPAN;
}

bool cl_http_parts_begin(struct cl_http_exchange *x)
{
    x->next = next_of_parts;
    x->left = 0;
    x->range = 0;
    return has_memory(x);
}

uint64_t cl_http_parts_bytes(const struct cl_http_exchange *x)
{
    uint64_t sum = 0;
    for (unsigned i = 0; i <= x->n_ranges; i++)
        sum += (uint64_t)part_head(x, i, NULL, 0) + (i < x->n_ranges ? x->ranges[i].len : 0);
    return sum;
}
