/* See propagate.h. */
#include "propagate.h"
#include "number.h"

#define ROOM_LEAST 4096u
#define ROOM_KEPT (1u << 20) /* a buffer larger than it is given back when what it held was taken */

static uint8_t *room(struct cl_resp *r, uint64_t bytes)
{
    struct cl_runits *u = &r->propagation.open;
    if (u->len + bytes > u->room) {
        uint64_t more = cl_max(u->len + bytes, cl_max(2 * u->room, (uint64_t)ROOM_LEAST));
        u->data = cl_rmem_resize(&r->mem, u->data, u->room, more);
        u->room = more;
    }
    uint8_t *at = u->data + u->len;
    u->len += bytes;
    return at;
}

static void header(struct cl_resp *r, char kind, uint64_t n)
{
    char text[CL_RNUM_ROOM];
    unsigned digits = cl_rnum_format(text, (int64_t)n);
    uint8_t *at = room(r, digits + 3u);
    *at++ = (uint8_t)kind;
    memcpy(at, text, digits);
    memcpy(at + digits, "\r\n", 2);
}

void cl_rprop_arg(struct cl_resp *r, struct cl_slice arg)
{
    header(r, '$', arg.len);
    uint8_t *at = room(r, arg.len + 2ull);
    if (arg.len) /* else there may be no p */
        memcpy(at, arg.p, arg.len);
    memcpy(at + arg.len, "\r\n", 2);
}

void cl_rprop_text(struct cl_resp *r, const char *arg)
{
    cl_rprop_arg(r, cl_slice_of(arg));
}

void cl_rprop_int(struct cl_resp *r, int64_t arg)
{
    char text[CL_RNUM_ROOM];
    cl_rprop_arg(r, (struct cl_slice){(uint8_t *)text, cl_rnum_format(text, arg)});
}

static void select_db(struct cl_resp *r, uint32_t db)
{
    if (r->propagation.db == db)
        return;
    r->propagation.db = db;
    header(r, '*', 2);
    cl_rprop_text(r, "SELECT");
    cl_rprop_int(r, db);
}

void cl_rprop_begin(struct cl_resp *r, uint32_t db, uint32_t argc)
{
    select_db(r, db);
    header(r, '*', argc);
}

void cl_rprop_all(struct cl_resp_client *c, const struct cl_slice *argv, uint32_t argc)
{
    cl_rprop_begin(c->r, c->db, argc);
    for (uint32_t i = 0; i < argc; i++)
        cl_rprop_arg(c->r, argv[i]);
}

void cl_rprop_say(struct cl_resp_client *c, const struct cl_slice *argv, uint32_t argc)
{
    cl_rprop_instead(c);
    cl_rprop_all(c, argv, argc);
}

void cl_rprop_say_int(struct cl_resp_client *c, const char *name, struct cl_slice key, int64_t v)
{
    char text[CL_RNUM_ROOM];
    CL_RPROP(c, cl_slice_of(name), key, {(uint8_t *)text, cl_rnum_format(text, v)});
}

void cl_rprop_gone(struct cl_resp *r, uint32_t db, struct cl_slice key)
{
    if (cl_likely(!cl_rprop_on(r)))
        return;
    cl_rprop_begin(r, db, 2);
    cl_rprop_text(r, "DEL");
    cl_rprop_arg(r, key);
}

void cl_rprop_end(struct cl_resp *r)
{
    struct cl_rpropagation *p = &r->propagation;
    if (cl_likely(p->open.len == p->ended))
        return;
    select_db(r, 0);
    p->ended = p->open.len;
    p->units++;
}

static void clear(struct cl_resp *r, struct cl_runits *u)
{
    u->len = 0;
    if (u->room <= ROOM_KEPT)
        return;
    cl_rmem_free(&r->mem, u->data, u->room);
    *u = (struct cl_runits){0};
}

const uint8_t *cl_rprop_take(struct cl_resp *r, uint64_t *len, uint64_t *unit)
{
    struct cl_rpropagation *p = &r->propagation;
    struct cl_runits open = p->open;
    clear(r, &p->taken);
    p->open = p->taken;
    p->taken = open;
    p->ended = 0;
    *len = open.len;
    *unit = p->units;
    return open.len ? open.data : NULL;
}

void cl_rprop_free(struct cl_resp *r)
{
    struct cl_rpropagation *p = &r->propagation;
    cl_rmem_free(&r->mem, p->open.data, p->open.room);
    cl_rmem_free(&r->mem, p->taken.data, p->taken.room);
    *p = (struct cl_rpropagation){0};
}
