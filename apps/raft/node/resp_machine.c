/* See resp_machine.h.
 *
 * An image: a header, the pieces that are kept, then frames of units that make the state, each with its length before
 * it.
 *
 *     0  u32 magic "CLRI"   4  u32 version   8  u64 epoch   16  u64 the number that comes next   24  u32 address, u32
 *     port
 *    32  u64 bytes of pieces                 40  the pieces, frames to the end: u64 bytes, units */
#include "resp_machine.h"
#include "../core/bytes.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0x55524c43u /* "CLRU" */
#define IMAGE_HEADER 40
#define FRAME_HEADER 8
#define STEP_BYTES (256u << 10) /* of keys, in a frame */
#define NODE_BYTES 4096         /* of a snapshot: its header and the group's members */
#define NOT_RESP "commands of this group come over RESP, at its port"

static bool add(struct raft_resp_bytes *b, const void *data, uint64_t len)
{
    if (b->len + len > b->room) {
        uint64_t room = cl_max(2 * b->room, b->len + len);
        uint8_t *more = realloc(b->data, room);
        if (!more)
            return false;
        b->data = more;
        b->room = room;
    }
    if (len)
        memcpy(b->data + b->len, data, len);
    b->len += len;
    return true;
}

static void drop(struct raft_resp_bytes *b)
{
    free(b->data);
    *b = (struct raft_resp_bytes){0};
}

void raft_resp_header(uint8_t out[RAFT_RESP_HEADER], enum raft_resp_kind kind, uint64_t epoch, uint64_t number)
{
    put32(out, MAGIC);
    put32(out + 4, kind);
    put64(out + 8, epoch);
    put64(out + 16, number);
}

static bool well_formed(const uint8_t *p, uint32_t bytes)
{
    if (bytes < RAFT_RESP_HEADER || get32(p) != MAGIC)
        return false;
    uint32_t kind = get32(p + 4), data = bytes - RAFT_RESP_HEADER;
    return (kind == RAFT_RESP_OPEN && data == RAFT_RESP_ADDRESS) ||
           ((kind == RAFT_RESP_PIECE || kind == RAFT_RESP_UNITS) && data);
}

static int64_t check(void *arg, const uint8_t *command, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    (void)arg;
    if (well_formed(command, bytes))
        return 0;
    uint32_t n = cl_min(room, (uint32_t)strlen(NOT_RESP));
    memcpy(reply, NOT_RESP, n);
    return CL_RAFT_REFUSES | (int64_t)n;
}

static void open_epoch(struct raft_resp *m, const uint8_t *p)
{
    m->epoch = get64(p + 8);
    m->next = 1;
    m->ipv4 = get32(p + RAFT_RESP_HEADER);
    m->port = get32(p + RAFT_RESP_HEADER + 4);
    drop(&m->pieces);
}

static int64_t apply(void *arg, uint64_t index, uint64_t clock_ms, const uint8_t *p, uint32_t bytes, uint8_t *reply,
                     uint32_t room)
{
    struct raft_resp *m = arg;
    (void)index, (void)clock_ms, (void)reply, (void)room;
    if (!well_formed(p, bytes))
        return CL_RAFT_REFUSES;
    uint32_t kind = get32(p + 4);
    if (kind == RAFT_RESP_OPEN) {
        open_epoch(m, p);
        return 0;
    }
    if (get64(p + 8) != m->epoch || get64(p + 16) != m->next)
        return CL_RAFT_REFUSES;
    m->next++;
    const uint8_t *units = p + RAFT_RESP_HEADER;
    uint64_t len = bytes - RAFT_RESP_HEADER;
    if ((kind == RAFT_RESP_PIECE || m->pieces.len) && !add(&m->pieces, units, len)) {
        snprintf(m->why, sizeof m->why, "no memory for a unit of more than %llu bytes",
                 (unsigned long long)m->pieces.len);
        return -ENOMEM;
    }
    if (kind == RAFT_RESP_PIECE)
        return 0;
    int rc = m->pieces.len ? cl_resp_apply(m->r, m->pieces.data, m->pieces.len, m->why)
                           : cl_resp_apply(m->r, units, len, m->why);
    drop(&m->pieces);
    return rc;
}

static int64_t query(void *arg, uint64_t clock_ms, const uint8_t *text, uint32_t bytes, uint8_t *reply, uint32_t room)
{
    struct raft_resp *m = arg;
    (void)clock_ms, (void)text, (void)bytes;
    if (room < 8)
        return -ENOSPC;
    put64(reply, m->epoch);
    return 8;
}

void raft_resp_image_begin(struct raft_resp *m)
{
    if (cl_resp_rewrites(m->r))
        cl_resp_rewrite_abort(m->r);
    m->images++;
    m->image_over = false;
    cl_resp_rewrite(m->r);
}

const uint8_t *raft_resp_image_next(struct raft_resp *m, uint64_t *len)
{
    uint64_t unit;
    *len = 0;
    if (m->image_over)
        return NULL;
    m->image_over = cl_resp_rewrite_step(m->r, STEP_BYTES);
    if (m->image_over)
        cl_resp_rewritten(m->r, 0);
    return cl_resp_units(m->r, len, &unit);
}

static bool begin_image(struct raft_resp *m)
{
    uint8_t header[IMAGE_HEADER];
    put32(header, CL_RAFT_RESP_IMAGE_MAGIC);
    put32(header + 4, CL_RAFT_RESP_IMAGE_VERSION);
    put64(header + 8, m->epoch);
    put64(header + 16, m->next);
    put32(header + 24, m->ipv4);
    put32(header + 28, m->port);
    put64(header + 32, m->pieces.len);
    raft_resp_image_begin(m);
    m->image.len = m->image_at = 0;
    return add(&m->image, header, sizeof header) && add(&m->image, m->pieces.data, m->pieces.len);
}

static bool next_frame(struct raft_resp *m)
{
    uint8_t header[FRAME_HEADER];
    uint64_t len;
    const uint8_t *units = raft_resp_image_next(m, &len);
    m->image.len = m->image_at = 0;
    put64(header, len);
    return !len || (add(&m->image, header, sizeof header) && add(&m->image, units, len));
}

static int64_t save(void *arg, uint64_t at, uint8_t *out, uint64_t room)
{
    struct raft_resp *m = arg;
    bool good = at ? true : begin_image(m);
    if (good && m->image_at == m->image.len)
        good = next_frame(m);
    if (!good) {
        snprintf(m->why, sizeof m->why, "no memory for the image of the values");
        return -ENOMEM;
    }
    uint64_t n = cl_min(room, m->image.len - m->image_at);
    if (!n) {
        drop(&m->image);
        m->image_at = 0;
        return 0;
    }
    memcpy(out, m->image.data + m->image_at, n);
    m->image_at += n;
    return (int64_t)n;
}

static int refuse(struct raft_resp *m, const char *what)
{
    snprintf(m->why, sizeof m->why, "%s", what);
    return -EINVAL;
}

static int engine(struct raft_resp *m, char err[256])
{
    cl_resp_delete(m->r);
    m->r = NULL;
    int rc = cl_resp_new(&m->settings, &m->r, err);
    if (!rc)
        cl_resp_propagate(m->r); /* the units of its images */
    return rc;
}

/* The header and the pieces. 0: they are not all here; < 0: -errno; else their bytes. */
static int64_t load_header(struct raft_resp *m, const uint8_t *p, uint64_t len, uint64_t total)
{
    if (len < IMAGE_HEADER)
        return 0;
    if (get32(p) != CL_RAFT_RESP_IMAGE_MAGIC || get32(p + 4) != CL_RAFT_RESP_IMAGE_VERSION)
        return refuse(m, "it is no image of values, or of another version");
    uint64_t pieces = get64(p + 32);
    if (pieces > total - IMAGE_HEADER)
        return refuse(m, "its pieces are said to be longer than it is");
    if (len - IMAGE_HEADER < pieces)
        return 0;
    m->epoch = get64(p + 8);
    m->next = get64(p + 16);
    m->ipv4 = get32(p + 24);
    m->port = get32(p + 28);
    drop(&m->pieces);
    if (!add(&m->pieces, p + IMAGE_HEADER, pieces))
        return -ENOMEM;
    return (int64_t)(IMAGE_HEADER + pieces);
}

/* A frame. As load_header. */
static int64_t load_frame(struct raft_resp *m, const uint8_t *p, uint64_t len, uint64_t total)
{
    if (len < FRAME_HEADER)
        return 0;
    uint64_t bytes = get64(p);
    if (bytes > total)
        return refuse(m, "a frame is said to be longer than all");
    if (len - FRAME_HEADER < bytes)
        return 0;
    int rc = cl_resp_apply(m->r, p + FRAME_HEADER, bytes, m->why);
    return rc ? rc : (int64_t)(FRAME_HEADER + bytes);
}

static int load(void *arg, uint64_t at, const uint8_t *data, uint64_t bytes, uint64_t total)
{
    struct raft_resp *m = arg;
    int rc = at ? 0 : engine(m, m->why);
    if (rc)
        return rc;
    if (!at) {
        m->in.len = 0;
        m->in_begun = false;
        m->images++;
    }
    if (!add(&m->in, data, bytes))
        return refuse(m, "no memory to load it");
    uint64_t done = 0;
    for (int64_t n = 1; n > 0 && done < m->in.len; done += (uint64_t)cl_max(n, (int64_t)0)) {
        int64_t (*part)(struct raft_resp *, const uint8_t *, uint64_t, uint64_t) =
            m->in_begun ? load_frame : load_header;
        n = part(m, m->in.data + done, m->in.len - done, total);
        if (n < 0)
            return (int)n;
        m->in_begun |= n > 0;
    }
    memmove(m->in.data, m->in.data + done, m->in.len - done);
    m->in.len -= done;
    if (at + bytes < total)
        return 0;
    if (m->in.len || !m->in_begun)
        return refuse(m, "it ends in the middle");
    drop(&m->in);
    return 0;
}

static const char *why(void *arg)
{
    return ((struct raft_resp *)arg)->why;
}

int raft_resp_new(struct raft_resp *m, const struct cl_resp_settings *settings, struct cl_raft_machine *out,
                  char err[256])
{
    *m = (struct raft_resp){.settings = *settings};
    int rc = engine(m, err);
    if (rc)
        return rc;
    *out = (struct cl_raft_machine){.arg = m,
                                    .apply = apply,
                                    .query = query,
                                    .save = save,
                                    .load = load,
                                    .check = check,
                                    .why = why,
                                    .settings = CL_RAFT_RESP_SETTINGS ^ settings->memory_bytes};
    return 0;
}

/* An image is about as long as what it is of takes in memory, or shorter. A key stands in it twice, once more for each
 * command that builds it: where keys are of hundreds of bytes and values are not, it is half as long again. */
int raft_resp_fits(const struct raft_resp *m, uint64_t room, uint64_t beside, char err[256])
{
    uint64_t most = m->settings.memory_bytes / 2 * 3 + beside + NODE_BYTES;
    if (most <= room)
        return 0;
    uint64_t good = room > beside + NODE_BYTES ? (room - beside - NODE_BYTES) / 3 * 2 : 0;
    snprintf(
        err, 256,
        "a snapshot of the values may take %llu MiB, and the log sets %llu MiB apart for one, a quarter of its size: "
        "give memory_bytes=%llu or less on all nodes, or a log of %llu MiB or more",
        (unsigned long long)((most >> 20) + 1), (unsigned long long)(room >> 20), (unsigned long long)good,
        (unsigned long long)((most >> 20) + 1) * 4 + 1);
    return -ENOSPC;
}

void raft_resp_delete(struct raft_resp *m)
{
    cl_resp_delete(m->r);
    drop(&m->pieces);
    drop(&m->image);
    drop(&m->in);
    *m = (struct raft_resp){0};
}
