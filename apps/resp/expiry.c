/* See expiry.h. */
#include "expiry.h"
#include "number.h"
#include "reply.h"

bool cl_expiry_unit(struct cl_slice word, struct cl_expiry *x)
{
    bool px = cl_slice_is(word, "px"), pxat = cl_slice_is(word, "pxat");
    bool ex = cl_slice_is(word, "ex"), exat = cl_slice_is(word, "exat");
    x->unit_ms = px || pxat ? 1 : 1000;
    x->absolute = pxat || exat;
    return px || pxat || ex || exat;
}

bool cl_expiry_at(struct cl_resp_client *c, const struct cl_expiry *x, const char *name, int64_t *at_ms)
{
    int64_t v;
    if (!cl_arg_int(c, x->at, &v))
        return false;
    if (v <= 0 || __builtin_mul_overflow(v, x->unit_ms, &v) ||
        __builtin_add_overflow(v, x->absolute ? 0 : c->r->now_ms, &v)) {
        cl_reply_error(c, "ERR invalid expire time in '%s' command", name);
        return false;
    }
    *at_ms = v;
    return true;
}
