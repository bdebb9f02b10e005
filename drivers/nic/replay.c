/* A NIC whose received frames come from a pcap file. See pcap.h. The file is read whole at creation, so that replaying
 * makes no system call; buffers are as in memory.h. */
#include "pcap.h"
#include "single.h"

#include "../../runtime/net.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#define LONGEST 16384 /* bytes of the longest frame that is replayed */

struct stored {
    uint64_t at_ns; /* since the first frame */
    uint32_t offset, len;
};

struct replay_nic {
    struct cl_single_nic single;
    uint8_t *file;
    struct stored *frames;
    uint32_t n_frames, next;
    uint64_t loop_tsc; /* when the present loop began; 0: not yet */
    double speed;
    uint64_t loops, span_ns; /* span: from the first to the last frame, and the mean gap for the next loop's first */
    struct cl_replay_counts counts;
    uint32_t done; /* writer: the polling thread; readers: anybody. Relaxed: it guards nothing */
};

static uint64_t due_tsc(const struct replay_nic *r)
{
    if (r->speed == 0)
        return 0;
    double ns = (double)r->frames[r->next].at_ns / r->speed;
    return r->loop_tsc + (uint64_t)cl_ns_to_ticks(r->single.nic.clock, (int64_t)ns);
}

static void step(struct replay_nic *r)
{
    if (++r->next < r->n_frames)
        return;
    cl_count(&r->counts.loops_done, 1);
    r->next = 0;
    if (r->loops && r->counts.loops_done == r->loops)
        cl_store_relaxed(&r->done, 1);
    if (r->speed > 0)
        r->loop_tsc += (uint64_t)cl_ns_to_ticks(r->single.nic.clock, (int64_t)((double)r->span_ns / r->speed));
}

static unsigned replay_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct replay_nic *r = (struct replay_nic *)nic;
    uint64_t now = cl_clock_stamp(nic->clock), bytes = 0;
    unsigned k = 0;
    (void)queue;
    if (cl_unlikely(!r->loop_tsc))
        r->loop_tsc = now;
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    for (; k < n && !r->done && due_tsc(r) <= now; k++, step(r)) {
        if (cl_single_get(&r->single, &frames[k], 1) == 0) {
            cl_count(&r->single.stats.alloc_short, 1); /* the frame waits: a file loses none */
            break;
        }
        const struct stored *s = &r->frames[r->next];
        memcpy(frames[k].data, r->file + s->offset, s->len);
        frames[k].len = (uint16_t)s->len;
        bytes += s->len;
    }
    cl_count(&r->counts.delivered, k);
    cl_count(&r->single.stats.rx_frames, k);
    cl_count(&r->single.stats.rx_bytes, bytes);
    return k;
}

static unsigned replay_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct replay_nic *r = (struct replay_nic *)nic;
    for (unsigned i = 0; i < n; i++) {
        if (frames[i].len < CL_ETH_HLEN || frames[i].len > nic->mtu + CL_ETH_HLEN) {
            cl_count(&r->single.stats.tx_dropped_malformed, 1);
            continue;
        }
        cl_count(&r->single.stats.tx_frames, 1);
        cl_count(&r->single.stats.tx_bytes, frames[i].len);
    }
    cl_single_free(nic, queue, frames, n);
    return n;
}

static uint64_t replay_next_tsc(struct cl_nic *nic, unsigned queue)
{
    struct replay_nic *r = (struct replay_nic *)nic;
    (void)queue;
    return r->done ? UINT64_MAX : r->loop_tsc ? due_tsc(r) : 0;
}

static int replay_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    return cl_single_wait_until((struct cl_single_nic *)nic, replay_next_tsc(nic, queue), timeout_ns);
}

static void replay_close(struct cl_nic *nic)
{
    struct replay_nic *r = (struct replay_nic *)nic;
    cl_single_exit(&r->single);
    free(r->frames);
    free(r->file);
    free(r);
}

static const struct cl_nic_ops replay_ops = {
    .name = "replay",
    .rx_burst = replay_rx,
    .tx_burst = replay_tx,
    .alloc = cl_single_alloc,
    .free = cl_single_free,
    .parker = cl_single_parker,
    .wait = replay_wait,
    .stats = cl_single_stats,
    .buffers_free = cl_single_buffers_free,
    .fd = cl_single_no_fd,
    .close = replay_close,
    .next_tsc = replay_next_tsc,
};

/* Reading the file. */

static int read_file(const char *path, uint8_t **out, size_t *len, char *err)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st)) {
        int rc = -errno;
        snprintf(err, 256, "cannot read %s: %s", path, strerror(-rc));
        if (fd >= 0)
            close(fd);
        return rc;
    }
    uint8_t *data = st.st_size > 0 && st.st_size < UINT32_MAX ? malloc((size_t)st.st_size) : NULL;
    size_t got = 0;
    while (data && got < (size_t)st.st_size) {
        ssize_t n = read(fd, data + got, (size_t)st.st_size - got);
        if (n <= 0)
            break;
        got += (size_t)n;
    }
    close(fd);
    if (!data) {
        snprintf(err, 256, "%s is empty, too long (4 GiB) or larger than memory", path);
        return -EINVAL;
    }
    *out = data;
    *len = got;
    return 0;
}

static uint32_t word(const uint8_t *p, bool swapped)
{
    uint32_t v = cl_get32(p);
    return swapped ? __builtin_bswap32(v) : v;
}

/* Find the frames. Their number, or -errno. A record cut off at the end of the file ends the list, as it does
 * elsewhere. */
static int64_t index_file(struct replay_nic *r, size_t len, const char *path, char *err)
{
    const uint8_t *f = r->file;
    uint32_t magic = len >= sizeof(struct cl_pcap_file_header) ? cl_get32(f) : 0;
    bool swapped = magic == __builtin_bswap32(CL_PCAP_MAGIC_NS) || magic == __builtin_bswap32(CL_PCAP_MAGIC_US);
    magic = swapped ? __builtin_bswap32(magic) : magic;
    if (magic != CL_PCAP_MAGIC_NS && magic != CL_PCAP_MAGIC_US) {
        snprintf(err, 256, "%s is no pcap file (pcapng: convert it with editcap -F pcap)", path);
        return -EPROTO;
    }
    uint32_t link = word(f + 20, swapped) & 0xffff;
    if (link != CL_PCAP_ETHERNET) {
        snprintf(err, 256, "%s holds frames of link type %u, not of Ethernet", path, link);
        return -EPROTO;
    }
    uint64_t unit_ns = magic == CL_PCAP_MAGIC_NS ? 1 : 1000, first_ns = 0, last_ns = 0;
    r->frames = malloc(len / sizeof(struct cl_pcap_record) * sizeof(*r->frames));
    if (!r->frames)
        return -ENOMEM;
    for (size_t at = sizeof(struct cl_pcap_file_header); at + sizeof(struct cl_pcap_record) <= len;) {
        uint64_t ns = word(f + at, swapped) * 1000000000ull + word(f + at + 4, swapped) * unit_ns;
        uint32_t kept = word(f + at + 8, swapped), whole = word(f + at + 12, swapped);
        at += sizeof(struct cl_pcap_record);
        if (kept > len - at)
            break;
        r->counts.in_file++;
        if (kept < whole || kept < CL_ETH_HLEN) {
            r->counts.cut++;
        } else if (kept > LONGEST) {
            r->counts.too_long++;
        } else {
            first_ns = r->n_frames ? first_ns : ns;
            last_ns = cl_max(last_ns, ns > first_ns ? ns - first_ns : 0); /* stamps that go back count as no time */
            r->frames[r->n_frames++] = (struct stored){last_ns, (uint32_t)at, kept};
        }
        at += kept;
    }
    if (!r->n_frames) {
        snprintf(err, 256, "%s holds no whole frame", path);
        return -ENODATA;
    }
    r->span_ns = last_ns + (r->n_frames > 1 ? last_ns / (r->n_frames - 1) : 0);
    return r->n_frames;
}

static int replay_build(struct replay_nic *r, const struct cl_replay_config *c, char *err)
{
    size_t len = 0;
    int rc = read_file(c->path, &r->file, &len, err);
    if (rc)
        return rc;
    int64_t n = index_file(r, len, c->path, err);
    if (n < 0)
        return (int)n;
    uint32_t longest = 1500 + CL_ETH_HLEN;
    for (uint32_t i = 0; i < r->n_frames; i++)
        longest = cl_max(longest, r->frames[i].len);
    r->speed = c->speed;
    r->loops = c->loops;
    r->single.nic = (struct cl_nic){.ops = &replay_ops,
                                    .n_queues = 1,
                                    .n_buffers = c->buffers ? c->buffers : 2048,
                                    .buffer_bytes = cl_max(2048u, (longest + CL_CACHELINE - 1) & ~(CL_CACHELINE - 1u)),
                                    .mtu = longest - CL_ETH_HLEN,
                                    .clock = c->clock ? c->clock : cl_clock_default()};
    bool given = cl_get32(c->mac) || cl_get16(c->mac + 4);
    memcpy(r->single.nic.mac, given ? c->mac : r->file + r->frames[0].offset, 6);
    return cl_single_init(&r->single);
}

int cl_replay_nic_new(const struct cl_replay_config *config, struct cl_nic **out, char *err)
{
    char unread[256];
    err = err ? err : unread;
    if (!(config->speed >= 0 && config->speed <= 1e9) || (config->speed > 0 && config->speed < 1e-6)) {
        snprintf(err, 256, "speed must be 0 (at once) or from 1e-6 to 1e9");
        return -EINVAL;
    }
    struct replay_nic *r = aligned_alloc(CL_CACHELINE, sizeof(*r));
    snprintf(err, 256, "out of memory");
    if (!r)
        return -ENOMEM;
    memset(r, 0, sizeof(*r));
    int rc = replay_build(r, config, err);
    if (rc) {
        replay_close(&r->single.nic);
        return rc;
    }
    *out = &r->single.nic;
    return 0;
}

bool cl_replay_done(struct cl_nic *nic)
{
    return cl_load_relaxed(&((struct replay_nic *)nic)->done);
}

void cl_replay_counts(struct cl_nic *nic, struct cl_replay_counts *out)
{
    const uint64_t *from = &((struct replay_nic *)nic)->counts.in_file;
    for (size_t i = 0; i < sizeof(*out) / sizeof(uint64_t); i++)
        ((uint64_t *)out)[i] = cl_load_relaxed(&from[i]);
}
