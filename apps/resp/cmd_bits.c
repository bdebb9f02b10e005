/* Bits of strings. The first bit of a byte is its highest. */
#include "bytes.h"
#include "commands.h"
#include "db.h"
#include "evict.h"
#include "number.h"
#include "reply.h"
#include "value.h"

static bool bit_offset(struct cl_resp_client *c, struct cl_slice s, bool hash, uint32_t bits, int64_t *out)
{
    bool scaled = hash && s.len && s.p[0] == '#';
    int64_t v, most = cl_min(c->r->config.bulk_most, (int64_t)512 << 20) * 8;
    if (scaled) {
        s.p++;
        s.len--;
    }
    if (!cl_rnum_int(s, &v) || (scaled && __builtin_mul_overflow(v, (int64_t)bits, &v)) || v < 0 || v >= most) {
        cl_reply_error(c, "ERR bit offset is not an integer or out of range");
        return false;
    }
    *out = v;
    return true;
}

/* The string, long enough for a bit; false: answered. *grown: it was not. */
static bool writable(struct cl_resp_client *c, struct cl_slice key, int64_t bit, struct cl_entry **e, bool *grown)
{
    uint64_t len = (uint64_t)bit / 8 + 1;
    char text[24];
    if (!cl_rdb_write_as(c, key, CL_R_STRING, e))
        return false;
    if (len > CL_BYTES_NEAR) {
        if (!cl_evict_or_refuse(c, len + (1 << 20)))
            return false;
        *e = cl_rdb_look(c, key);
    }
    if (!*e) {
        *e = cl_rdb_add(c, key, CL_R_STRING);
        (*e)->how = CL_R_RAW;
        (*e)->bytes = cl_bytes_room(&c->r->mem, (uint32_t)len);
    }
    *grown = cl_rvalue_text(*e, text).len < len;
    cl_rvalue_raw(c->r, *e, len);
    return true;
}

void cl_cmd_setbit(struct cl_resp_client *c)
{
    struct cl_entry *e;
    int64_t at, on;
    bool grown;
    if (!bit_offset(c, ARG(c, 2), false, 0, &at) ||
        !cl_arg_in(c, 3, 0, 1, &on, "ERR bit is not an integer or out of range") ||
        !writable(c, ARG(c, 1), at, &e, &grown))
        return;
    uint8_t *byte = e->bytes->data + at / 8, mask = (uint8_t)(0x80 >> at % 8), was = *byte & mask;
    *byte = (uint8_t)((*byte & ~mask) | (on ? mask : 0));
    if (grown || (was != 0) != on)
        cl_rdb_wrote(c, CL_RN_STRING, "setbit", ARG(c, 1), 1);
    cl_reply_int(c, was != 0);
}

void cl_cmd_getbit(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    int64_t at;
    if (!bit_offset(c, ARG(c, 2), false, 0, &at) || !cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    struct cl_slice s = e ? cl_rvalue_text(e, text) : (struct cl_slice){NULL, 0};
    cl_reply_int(c, at / 8 < s.len ? s.p[at / 8] >> (7 - at % 8) & 1 : 0);
}

static int64_t ones(const uint8_t *p, int64_t n)
{
    int64_t count = 0;
    for (; n >= 8; n -= 8, p += 8)
        count += __builtin_popcountll(kv_read64(p));
    for (; n > 0; n--)
        count += __builtin_popcount(*p++);
    return count;
}

/* Of `n` bits from bit `from` on. */
static int64_t ones_in(const uint8_t *p, int64_t from, int64_t n)
{
    int64_t count = 0;
    for (; n && from % 8; from++, n--)
        count += p[from / 8] >> (7 - from % 8) & 1;
    count += ones(p + from / 8, n / 8);
    for (from += n / 8 * 8, n %= 8; n; from++, n--)
        count += p[from / 8] >> (7 - from % 8) & 1;
    return count;
}

/* A range of bits, by bytes or by bits, as arguments give it. */
struct bit_range {
    int64_t from, to; /* bits, both in it */
    bool given_end, none;
};

/* BIT or BYTE, if argument n is there. */
static bool unit_of(struct cl_resp_client *c, uint32_t n, int64_t *unit)
{
    *unit = 8;
    if (c->argc <= n || ARG_IS(c, n, "byte"))
        return true;
    *unit = 1;
    if (ARG_IS(c, n, "bit"))
        return true;
    cl_reply_syntax(c);
    return false;
}

/* Start, end and unit from argument n on, of which errors are told in Redis' order. */
static bool range_of(struct cl_resp_client *c, uint32_t n, bool unit_first, int64_t bytes, struct bit_range *x)
{
    int64_t from = 0, to = 0, unit = 8;
    x->given_end = c->argc > n + 1;
    if ((c->argc > n && !cl_arg_int(c, n, &from)) || (unit_first && !unit_of(c, n + 2, &unit)) ||
        (x->given_end && !cl_arg_int(c, n + 1, &to)))
        return false;
    x->none = !unit_first && from < 0 && to < 0 && from > to;
    if (!unit_first && !x->none && !unit_of(c, n + 2, &unit))
        return false;
    int64_t len = unit == 1 ? bytes * 8 : bytes;
    if (!x->given_end)
        to = len - 1;
    from = from < 0 ? cl_max(from + len, (int64_t)0) : from;
    to = to < 0 ? cl_max(to + len, (int64_t)0) : to;
    to = cl_min(to, len - 1);
    x->none |= from > to;
    x->from = from * unit;
    x->to = to * unit + unit - 1;
    return true;
}

void cl_cmd_bitcount(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    struct bit_range x;
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    if (!e) {
        cl_reply_int(c, 0);
        return;
    }
    if (c->argc == 3 || c->argc > 5) {
        cl_reply_syntax(c);
        return;
    }
    struct cl_slice s = cl_rvalue_text(e, text);
    if (!range_of(c, 2, false, s.len, &x))
        return;
    cl_reply_int(c, x.none ? 0 : ones_in(s.p, x.from, x.to - x.from + 1));
}

static int64_t position(struct cl_slice s, int64_t from, int64_t to, int bit)
{
    uint8_t skip = bit ? 0 : 0xff;
    for (int64_t at = from; at <= to;) {
        if (at % 8 == 0 && to - at >= 7 && s.p[at / 8] == skip) {
            at += 8;
            continue;
        }
        if ((s.p[at / 8] >> (7 - at % 8) & 1) == bit)
            return at;
        at++;
    }
    return -1;
}

void cl_cmd_bitpos(struct cl_resp_client *c)
{
    struct cl_entry *e;
    char text[24];
    struct bit_range x;
    int64_t bit;
    if (!cl_arg_int(c, 2, &bit))
        return;
    if (bit != 0 && bit != 1) {
        cl_reply_error(c, "ERR The bit argument must be 1 or 0.");
        return;
    }
    if (!cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e))
        return;
    if (!e) {
        cl_reply_int(c, bit ? -1 : 0);
        return;
    }
    struct cl_slice s = cl_rvalue_text(e, text);
    if (c->argc > 6) {
        cl_reply_syntax(c);
        return;
    }
    if (!range_of(c, 3, true, s.len, &x))
        return;
    int64_t at = x.none ? -1 : position(s, x.from, x.to, (int)bit);
    if (at < 0 && !bit && !x.given_end && !x.none) /* behind the string there are zeros */
        at = (int64_t)s.len * 8;
    cl_reply_int(c, at);
}

/* BITOP. */

static uint8_t combined(char op, const struct cl_slice *in, uint32_t n, uint64_t i)
{
    uint8_t v = i < in[0].len ? in[0].p[i] : 0;
    if (op == '~')
        return (uint8_t)~v;
    for (uint32_t k = 1; k < n; k++) {
        uint8_t w = i < in[k].len ? in[k].p[i] : 0;
        v = op == '&' ? v & w : op == '|' ? v | w : v ^ w;
    }
    return v;
}

static char bitop_of(struct cl_slice s)
{
    return cl_slice_is(s, "and")   ? '&'
           : cl_slice_is(s, "or")  ? '|'
           : cl_slice_is(s, "xor") ? '^'
           : cl_slice_is(s, "not") ? '~'
                                   : 0;
}

/* The sources, the longest of them; false: answered. texts: for integers. */
static bool bitop_sources(struct cl_resp_client *c, struct cl_slice *in, char (*texts)[24], uint64_t *longest)
{
    *longest = 0;
    for (uint32_t i = 3; i < c->argc; i++) {
        struct cl_entry *e;
        if (!cl_rdb_read_as(c, ARG(c, i), CL_R_STRING, &e))
            return false;
        in[i - 3] = e ? cl_rvalue_text(e, texts[i - 3]) : (struct cl_slice){NULL, 0};
        *longest = cl_max(*longest, (uint64_t)in[i - 3].len);
    }
    return true;
}

static void bitop_store(struct cl_resp_client *c, struct cl_bytes *out)
{
    struct cl_slice key = ARG(c, 2);
    struct cl_entry *e = cl_rdb_write(c, key);
    if (!out) {
        if (e)
            cl_rdb_delete(c, e);
        return;
    }
    e = cl_rdb_replace(c, e, key, CL_R_STRING);
    e->how = CL_R_RAW;
    e->bytes = out;
    cl_rdb_wrote(c, CL_RN_STRING, "set", key, 1);
}

void cl_cmd_bitop(struct cl_resp_client *c)
{
    char op = bitop_of(ARG(c, 1));
    uint32_t n = c->argc - 3;
    uint64_t longest;
    if (!op) {
        cl_reply_syntax(c);
        return;
    }
    if (op == '~' && n != 1) {
        cl_reply_error(c, "ERR BITOP NOT must be called with a single source key.");
        return;
    }
    struct cl_slice *in = cl_rmem_new(&c->r->mem, n * sizeof *in);
    char(*texts)[24] = cl_rmem_new(&c->r->mem, n * sizeof *texts);
    if (bitop_sources(c, in, texts, &longest)) {
        struct cl_bytes *out = NULL;
        if (c->r->mem.used + longest > cl_resp_limit(c->r)) {
            cl_evict_refuse(c); /* evicting might remove a source */
        } else {
            if (longest) {
                out = cl_bytes_room(&c->r->mem, (uint32_t)longest);
                out->len = (uint32_t)longest;
                for (uint64_t i = 0; i < longest; i++)
                    out->data[i] = combined(op, in, n, i);
            }
            bitop_store(c, out);
            cl_reply_int(c, (int64_t)longest);
        }
    }
    cl_rmem_free(&c->r->mem, texts, n * sizeof *texts);
    cl_rmem_free(&c->r->mem, in, n * sizeof *in);
}

/* BITFIELD: integers of any width at any bit. */

enum field_op { FIELD_GET, FIELD_SET, FIELD_INCRBY };
enum field_overflow { FIELD_WRAP, FIELD_SAT, FIELD_FAIL };

struct field {
    enum field_op op;
    enum field_overflow overflow;
    bool is_signed;
    uint32_t bits;
    int64_t offset, value;
};

static uint64_t field_read(struct cl_slice s, int64_t offset, uint32_t bits)
{
    uint64_t v = 0;
    for (uint32_t i = 0; i < bits; i++, offset++)
        v = v << 1 | (offset / 8 < s.len ? s.p[offset / 8] >> (7 - offset % 8) & 1 : 0);
    return v;
}

static void field_write(uint8_t *p, int64_t offset, uint32_t bits, uint64_t v)
{
    for (uint32_t i = 0; i < bits; i++, offset++) {
        uint8_t mask = (uint8_t)(0x80 >> offset % 8);
        bool on = v >> (bits - 1 - i) & 1;
        p[offset / 8] = (uint8_t)((p[offset / 8] & ~mask) | (on ? mask : 0));
    }
}

static int64_t extended(uint64_t v, const struct field *f)
{
    if (!f->is_signed || f->bits == 64 || !(v >> (f->bits - 1) & 1))
        return (int64_t)v;
    return (int64_t)(v | ~0ull << f->bits);
}

/* v + by within the field's range. False: it overflows, and that fails. */
static bool field_add(const struct field *f, int64_t v, int64_t by, int64_t *out)
{
    __extension__ typedef __int128 wide;
    wide least = f->is_signed ? -((wide)1 << (f->bits - 1)) : 0;
    wide most = ((wide)1 << (f->is_signed ? f->bits - 1 : f->bits)) - 1, sum = (wide)v + by;
    if (sum >= least && sum <= most) {
        *out = (int64_t)sum;
        return true;
    }
    if (f->overflow == FIELD_FAIL)
        return false;
    if (f->overflow == FIELD_SAT)
        *out = (int64_t)(sum < least ? least : most);
    else
        *out = extended((uint64_t)sum & (f->bits == 64 ? ~0ull : (1ull << f->bits) - 1), f);
    return true;
}

static bool field_type(struct cl_resp_client *c, struct cl_slice s, struct field *f)
{
    int64_t bits;
    f->is_signed = s.len && s.p[0] == 'i';
    struct cl_slice digits = {s.p + 1, s.len ? s.len - 1 : 0};
    if (!s.len || (s.p[0] != 'i' && s.p[0] != 'u') || !cl_rnum_int(digits, &bits) || bits < 1 ||
        bits > (f->is_signed ? 64 : 63)) {
        cl_reply_error(c, "ERR Invalid bitfield type. Use something like i16 u8. Note that u64 is not supported but "
                          "i64 is.");
        return false;
    }
    f->bits = (uint32_t)bits;
    return true;
}

static bool field_overflow(struct cl_resp_client *c, struct cl_slice s, enum field_overflow *out)
{
    if (cl_slice_is(s, "wrap"))
        *out = FIELD_WRAP;
    else if (cl_slice_is(s, "sat"))
        *out = FIELD_SAT;
    else if (cl_slice_is(s, "fail"))
        *out = FIELD_FAIL;
    else {
        cl_reply_error(c, "ERR Invalid OVERFLOW type specified");
        return false;
    }
    return true;
}

/* All operations; false: answered. */
static bool fields_of(struct cl_resp_client *c, bool read_only, struct field *out, uint32_t *n, int64_t *last_bit)
{
    enum field_overflow overflow = FIELD_WRAP;
    *n = 0;
    *last_bit = -1;
    for (uint32_t i = 2; i < c->argc;) {
        uint32_t left = c->argc - i - 1;
        struct field *f = &out[*n];
        *f = (struct field){.overflow = overflow};
        if (ARG_IS(c, i, "overflow") && left >= 1) {
            if (!field_overflow(c, ARG(c, i + 1), &overflow))
                return false;
            i += 2;
            continue;
        }
        if (ARG_IS(c, i, "get") && left >= 2)
            f->op = FIELD_GET;
        else if (ARG_IS(c, i, "set") && left >= 3)
            f->op = FIELD_SET;
        else if (ARG_IS(c, i, "incrby") && left >= 3)
            f->op = FIELD_INCRBY;
        else
            return cl_reply_syntax(c), false;
        if (!field_type(c, ARG(c, i + 1), f) || !bit_offset(c, ARG(c, i + 2), true, f->bits, &f->offset))
            return false;
        if (f->op != FIELD_GET) {
            *last_bit = cl_max(*last_bit, f->offset + f->bits - 1);
            if (!cl_arg_int(c, i + 3, &f->value))
                return false;
        }
        i += f->op == FIELD_GET ? 3 : 4;
        (*n)++;
    }
    if (!read_only || *last_bit < 0)
        return true;
    cl_reply_error(c, "ERR BITFIELD_RO only supports the GET subcommand");
    return false;
}

/* Returns whether it has changed the string, which may have grown for it. */
static bool field_do(struct cl_resp_client *c, const struct field *f, struct cl_slice s, bool grown)
{
    int64_t was = extended(field_read(s, f->offset, f->bits), f), next;
    if (f->op == FIELD_GET) {
        cl_reply_int(c, was);
        return false;
    }
    bool fits = f->op == FIELD_INCRBY ? field_add(f, was, f->value, &next) : field_add(f, f->value, 0, &next);
    if (!fits) {
        cl_reply_null(c);
        return false;
    }
    field_write((uint8_t *)(uintptr_t)s.p, f->offset, f->bits, (uint64_t)next);
    cl_reply_int(c, f->op == FIELD_INCRBY ? next : was);
    return grown || next != was;
}

static void bitfield(struct cl_resp_client *c, bool read_only)
{
    uint64_t bytes = c->argc * sizeof(struct field);
    struct field *fields = cl_rmem_new(&c->r->mem, bytes);
    struct cl_entry *e = NULL;
    uint32_t n;
    int64_t last_bit;
    char text[24];
    bool grown = false, right = fields_of(c, read_only, fields, &n, &last_bit);
    if (right && last_bit < 0)
        right = cl_rdb_read_as(c, ARG(c, 1), CL_R_STRING, &e);
    else if (right)
        right = writable(c, ARG(c, 1), last_bit, &e, &grown);
    if (right) {
        struct cl_slice s = e ? cl_rvalue_text(e, text) : (struct cl_slice){NULL, 0};
        cl_reply_array(c, n);
        uint64_t changes = 0;
        for (uint32_t i = 0; i < n; i++)
            changes += field_do(c, &fields[i], s, grown);
        if (changes)
            cl_rdb_wrote(c, CL_RN_STRING, "setbit", ARG(c, 1), changes);
    }
    cl_rmem_free(&c->r->mem, fields, bytes);
}

void cl_cmd_bitfield(struct cl_resp_client *c)
{
    bitfield(c, false);
}

void cl_cmd_bitfield_ro(struct cl_resp_client *c)
{
    bitfield(c, true);
}
