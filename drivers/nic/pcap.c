/* The recorder. See pcap.h. */
#include "pcap.h"

#include <corelane/runtime/clock.h>

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define OUT_BYTES (256u << 10)
#define SWEEP_NS 10000000 /* the writer looks at the rings this often at least */

/* What lies in a ring: this, then the kept bytes, padded to 16. `size` 0: the rest of the ring up to its end is
 * unused. */
struct entry {
    uint64_t tsc;
    uint32_t kept_bytes, frame_bytes;
};

/* One queue and direction. tail: writer the polling thread, reader the recorder (release/acquire: the entries before
 * it). head: the other way round (the entries before it have been copied out). Byte positions, never wrapped. */
struct track {
    uint64_t tail CL_ALIGNED(CL_CACHELINE);
    uint64_t head_cache; /* the polling thread's */
    uint64_t recorded, missed;
    uint64_t head CL_ALIGNED(CL_CACHELINE);
    uint64_t sweep_to; /* the recorder's: tail when this sweep began */
    uint8_t *ring;     /* constant */
};

struct pcap_nic {
    struct cl_nic nic;
    struct cl_nic *inner;
    struct track *tracks; /* [queue * 2 + sent] */
    uint32_t n_tracks, ring_bytes, snap_bytes;
    int fd;
    pthread_t thread;
    bool stepped;           /* constant: by a virtual clock. Who polls writes the file, and there is no thread */
    int64_t wall_offset_ns; /* CLOCK_REALTIME - CLOCK_MONOTONIC, taken once: the file's times never step. Stepped: 0 */
    int64_t steered_ns;     /* the recorder's: by how much NTP has moved CLOCK_MONOTONIC against the stamps' clock */
    uint64_t last_ns;       /* the recorder's: times in the file do not go back */
    uint8_t *out;           /* the recorder's */
    uint32_t out_len;
    uint64_t written, file_bytes, failed_errno; /* writer: the recorder */
    uint32_t stop;                              /* writer: close. Release/acquire: what the rings hold */
    uint64_t flushes_wanted, flushes_done;      /* writers: cl_pcap_flush; the recorder */
    struct cl_parker parker;
    uint32_t word CL_ALIGNED(CL_CACHELINE); /* the recorder's parker */
};

static uint64_t padded(uint32_t n)
{
    return ((uint64_t)n + 15) & ~15ull;
}

/* Copy one frame into the ring at position `tail`, unpublished. Returns the position behind it, 0 if there is no
 * room. */
static uint64_t stage(struct pcap_nic *p, struct track *t, uint64_t tail, const struct cl_frame *frame, uint64_t tsc)
{
    /* A frame that is longer than any may be will be refused below; its buffer may end before it. */
    uint32_t kept = cl_min(cl_min((uint32_t)frame->len, p->nic.mtu + 14), p->snap_bytes);
    uint64_t need = sizeof(struct entry) + padded(kept), at = tail & (p->ring_bytes - 1);
    uint64_t skip = p->ring_bytes - at < need ? p->ring_bytes - at : 0; /* entries do not wrap round */
    if (tail + skip + need - t->head_cache > p->ring_bytes) {
        t->head_cache = cl_load_acquire(&t->head); /* acquire: those bytes have been copied out */
        if (tail + skip + need - t->head_cache > p->ring_bytes)
            return 0;
    }
    if (skip) {
        /* Positions are multiples of 16, so a header fits into any rest. */
        memset(t->ring + at, 0, sizeof(struct entry));
        at = 0;
    }
    struct entry e = {tsc, kept, frame->len};
    memcpy(t->ring + at, &e, sizeof e);
    memcpy(t->ring + at + sizeof e, frame->data, kept);
    return tail + skip + need;
}

/* What a burst will have recorded, frame by frame, once it is known how many of them pass. */
struct staged {
    uint64_t tail[CL_NIC_BURST]; /* behind frame i */
    uint64_t missed;             /* bit i */
};

static void stage_burst(struct pcap_nic *p, struct track *t, const struct cl_frame *frames, unsigned n,
                        struct staged *s)
{
    uint64_t tsc = cl_clock_stamp(p->nic.clock), tail = t->tail;
    s->missed = 0;
    for (unsigned i = 0; i < n; i++) {
        uint64_t next = stage(p, t, tail, &frames[i], tsc);
        s->missed |= (uint64_t)(next == 0) << i;
        tail = next ? next : tail;
        s->tail[i] = tail;
    }
}

static void sweep(struct pcap_nic *p);

static void publish(struct pcap_nic *p, struct track *t, const struct staged *s, unsigned n)
{
    if (!n)
        return;
    uint64_t of_these = n == 64 ? ~0ull : (1ull << n) - 1;
    unsigned missed = (unsigned)__builtin_popcountll(s->missed & of_these);
    cl_count(&t->recorded, n - missed);
    cl_count(&t->missed, missed);
    cl_store_release(&t->tail, s->tail[n - 1]); /* release: the entries before it */
    if (cl_unlikely(p->stepped)) {
        sweep(p);
    } else if (cl_unlikely(t->tail - t->head_cache > p->ring_bytes / 2)) {
        t->head_cache = cl_load_acquire(&t->head);
        if (t->tail - t->head_cache > p->ring_bytes / 2)
            cl_park_wake(&p->parker);
    }
}

/* The recorder's thread. */

static void write_out(struct pcap_nic *p)
{
    for (uint32_t done = 0; done < p->out_len && !p->failed_errno;) {
        ssize_t n = write(p->fd, p->out + done, p->out_len - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            cl_store_relaxed(&p->failed_errno, (uint64_t)errno);
        else
            done += (uint32_t)n;
    }
    if (!p->failed_errno)
        cl_count(&p->file_bytes, p->out_len);
    p->out_len = 0;
}

static void put(struct pcap_nic *p, const void *data, uint32_t n)
{
    if (p->out_len + n > OUT_BYTES)
        write_out(p);
    memcpy(p->out + p->out_len, data, n);
    p->out_len += n;
}

/* The next entry of a track within this sweep, or NULL. */
static const struct entry *peek(struct pcap_nic *p, struct track *t)
{
    if (t->head == t->sweep_to)
        return NULL;
    const struct entry *e = (const struct entry *)(void *)(t->ring + (t->head & (p->ring_bytes - 1)));
    if (e->tsc == 0) { /* the rest is unused */
        cl_store_release(&t->head, t->head + p->ring_bytes - (t->head & (p->ring_bytes - 1)));
        e = (const struct entry *)(void *)t->ring;
    }
    return e;
}

/* Write the oldest entry of all tracks. False if there is none. */
static bool write_oldest(struct pcap_nic *p)
{
    struct track *from = NULL;
    const struct entry *oldest = NULL;
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        const struct entry *e = peek(p, &p->tracks[i]);
        if (e && (!oldest || e->tsc < oldest->tsc)) {
            oldest = e;
            from = &p->tracks[i];
        }
    }
    if (!oldest)
        return false;
    uint64_t ns = (uint64_t)(cl_tsc_to_ns(p->nic.clock, oldest->tsc) + p->steered_ns + p->wall_offset_ns);
    ns = p->last_ns = cl_max(ns, p->last_ns);
    struct cl_pcap_record r = {(uint32_t)(ns / 1000000000), (uint32_t)(ns % 1000000000), oldest->kept_bytes,
                               oldest->frame_bytes};
    put(p, &r, sizeof r);
    put(p, oldest + 1, oldest->kept_bytes);
    cl_count(&p->written, 1);
    /* Release: the bytes have been copied out. */
    cl_store_release(&from->head, from->head + sizeof(*oldest) + padded(oldest->kept_bytes));
    return true;
}

/* Write what lies in the rings now, and no more: traffic that never pauses must not hold up a flush. */
static void sweep(struct pcap_nic *p)
{
    for (uint32_t i = 0; i < p->n_tracks; i++)
        p->tracks[i].sweep_to = cl_load_acquire(&p->tracks[i].tail); /* acquire: the entries before it */
    while (write_oldest(p))
        ;
}

/* A clock's rate is measured once: a capture of days would be seconds off. */
static void follow_clock(struct pcap_nic *p)
{
    uint64_t tsc;
    int64_t ns;
    if (!cl_clock_pair(&tsc, &ns))
        p->steered_ns = ns - cl_tsc_to_ns(p->nic.clock, tsc);
}

static void *recorder(void *arg)
{
    struct pcap_nic *p = arg;
    for (;;) {
        follow_clock(p);
        uint64_t wanted = cl_load_acquire(&p->flushes_wanted); /* acquire: what the asker saw recorded */
        bool stop = cl_load_acquire(&p->stop);
        sweep(p);
        write_out(p);
        cl_store_release(&p->flushes_done, wanted); /* release: the file has it */
        if (stop)
            return NULL;
        cl_park_begin(&p->parker);
        if (cl_load_relaxed(&p->stop) || cl_load_relaxed(&p->flushes_wanted) != wanted)
            cl_park_cancel(&p->parker);
        else
            cl_park_wait(&p->parker, SWEEP_NS);
    }
}

/* The NIC. */

static void check_gone(struct pcap_nic *p)
{
    if (cl_unlikely(cl_load_relaxed(&p->inner->gone)))
        cl_store_relaxed(&p->nic.gone, 1);
}

static unsigned pcap_rx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    struct track *t = &p->tracks[queue * 2];
    struct staged staged;
    unsigned got = p->inner->ops->rx_burst(p->inner, queue, frames, cl_min(n, (unsigned)CL_NIC_BURST));
    if (got) {
        stage_burst(p, t, frames, got, &staged);
        publish(p, t, &staged, got);
    }
    check_gone(p);
    return got;
}

/* Copied before they are offered, since the NIC may free what it takes; published are those that it took. */
static unsigned pcap_tx(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    struct track *t = &p->tracks[queue * 2 + 1];
    struct staged staged;
    n = cl_min(n, (unsigned)CL_NIC_BURST);
    stage_burst(p, t, frames, n, &staged);
    unsigned taken = p->inner->ops->tx_burst(p->inner, queue, frames, n);
    publish(p, t, &staged, taken);
    return taken;
}

static unsigned pcap_alloc(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    return p->inner->ops->alloc(p->inner, queue, frames, n);
}

static void pcap_free(struct cl_nic *nic, unsigned queue, struct cl_frame *frames, unsigned n)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    p->inner->ops->free(p->inner, queue, frames, n);
}

static struct cl_parker *pcap_parker(struct cl_nic *nic, unsigned queue)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    return p->inner->ops->parker(p->inner, queue);
}

static int pcap_wait(struct cl_nic *nic, unsigned queue, int64_t timeout_ns)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    return p->inner->ops->wait(p->inner, queue, timeout_ns);
}

static void pcap_stats(struct cl_nic *nic, unsigned queue, struct cl_nic_stats *out)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    p->inner->ops->stats(p->inner, queue, out);
    check_gone(p);
}

static uint32_t pcap_buffers_free(struct cl_nic *nic)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    return p->inner->ops->buffers_free(p->inner);
}

static int pcap_fd(struct cl_nic *nic, unsigned queue)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    return p->inner->ops->fd(p->inner, queue);
}

static uint64_t pcap_next_tsc(struct cl_nic *nic, unsigned queue)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    return p->inner->ops->next_tsc ? p->inner->ops->next_tsc(p->inner, queue) : UINT64_MAX;
}

static void pcap_delete(struct pcap_nic *p)
{
    for (uint32_t i = 0; p->tracks && i < p->n_tracks; i++)
        if (p->tracks[i].ring)
            munmap(p->tracks[i].ring, p->ring_bytes);
    if (p->fd >= 0)
        close(p->fd);
    free(p->tracks);
    free(p->out);
    free(p);
}

static void pcap_close(struct cl_nic *nic)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    if (p->stepped) {
        write_out(p);
    } else {
        cl_store_release(&p->stop, 1);
        cl_park_wake(&p->parker);
        pthread_join(p->thread, NULL);
    }
    p->inner->ops->close(p->inner);
    pcap_delete(p);
}

static const struct cl_nic_ops pcap_ops = {
    .name = "pcap",
    .rx_burst = pcap_rx,
    .tx_burst = pcap_tx,
    .alloc = pcap_alloc,
    .free = pcap_free,
    .parker = pcap_parker,
    .wait = pcap_wait,
    .stats = pcap_stats,
    .buffers_free = pcap_buffers_free,
    .fd = pcap_fd,
    .close = pcap_close,
    .next_tsc = pcap_next_tsc,
};

static int64_t wall_offset(void)
{
    struct timespec wall, mono;
    clock_gettime(CLOCK_REALTIME, &wall);
    clock_gettime(CLOCK_MONOTONIC, &mono);
    return (wall.tv_sec - mono.tv_sec) * 1000000000 + wall.tv_nsec - mono.tv_nsec;
}

/* What holds frames from now on; -errno with one line in err. */
static int open_file(const char *path, char *err)
{
    struct stat st;
    if (stat(path, &st) == 0 && S_ISBLK(st.st_mode)) {
        snprintf(err, 256, "%s is a block device, and whatever it holds would be lost", path);
        return -EINVAL;
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), rc = -errno;
    if (fd < 0)
        snprintf(err, 256, "cannot write %s: %s", path, strerror(-rc));
    return fd < 0 ? rc : fd;
}

static int pcap_build(struct pcap_nic *p, const struct cl_pcap_config *c, char *err)
{
    p->n_tracks = p->nic.n_queues * 2;
    p->tracks = aligned_alloc(CL_CACHELINE, p->n_tracks * sizeof(*p->tracks));
    p->out = malloc(OUT_BYTES);
    if (!p->tracks || !p->out)
        return -ENOMEM;
    memset(p->tracks, 0, p->n_tracks * sizeof(*p->tracks));
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        void *ring =
            mmap(NULL, p->ring_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (ring == MAP_FAILED)
            return -ENOMEM;
        p->tracks[i].ring = ring;
    }
    p->fd = open_file(c->path, err);
    if (p->fd < 0)
        return p->fd;
    struct cl_pcap_file_header h = {CL_PCAP_MAGIC_NS, 2, 4, 0, 0, p->snap_bytes, CL_PCAP_ETHERNET};
    put(p, &h, sizeof h);
    p->parker = (struct cl_parker){.word = &p->word, .event_fd = -1};
    p->stepped = p->nic.clock->word;
    if (p->stepped)
        return 0;
    p->wall_offset_ns = wall_offset();
    return -pthread_create(&p->thread, NULL, recorder, p);
}

int cl_pcap_nic_new(struct cl_nic *inner, const struct cl_pcap_config *config, struct cl_nic **out, char *err)
{
    char unread[256];
    err = err ? err : unread;
    uint32_t snap = config->snap_bytes ? config->snap_bytes : 65535;
    uint32_t ring = config->ring_bytes ? config->ring_bytes : 1u << 20;
    if (snap > 65535 || ring < 65536u || ring > 1u << 30 || (ring & (ring - 1))) {
        snprintf(err, 256, "snap_bytes is at most 65535; ring_bytes a power of two from 64 KiB to 1 GiB");
        return -EINVAL;
    }
    struct pcap_nic *p = aligned_alloc(CL_CACHELINE, sizeof(*p));
    snprintf(err, 256, "out of memory for the recorder's rings");
    if (!p)
        return -ENOMEM;
    memset(p, 0, sizeof(*p));
    p->nic = *inner;
    p->nic.ops = &pcap_ops;
    p->nic.clock = cl_nic_clock(inner);
    p->inner = inner;
    p->fd = -1;
    p->snap_bytes = snap;
    p->ring_bytes = ring;
    int rc = pcap_build(p, config, err);
    if (rc) {
        pcap_delete(p);
        return rc;
    }
    *out = &p->nic;
    return 0;
}

void cl_pcap_counts(struct cl_nic *nic, struct cl_pcap_counts *out)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    *out = (struct cl_pcap_counts){.written = cl_load_relaxed(&p->written),
                                   .file_bytes = cl_load_relaxed(&p->file_bytes),
                                   .failed_errno = cl_load_relaxed(&p->failed_errno)};
    for (uint32_t i = 0; i < p->n_tracks; i++) {
        out->recorded += cl_load_relaxed(&p->tracks[i].recorded);
        out->missed += cl_load_relaxed(&p->tracks[i].missed);
    }
}

int cl_pcap_flush(struct cl_nic *nic)
{
    struct pcap_nic *p = (struct pcap_nic *)nic;
    const struct timespec pause = {0, 200000};
    if (p->stepped) {
        write_out(p);
        return -(int)p->failed_errno;
    }
    /* Release: whatever the caller knows to be recorded is in the rings before the recorder sees the wish. */
    uint64_t mine = __atomic_add_fetch(&p->flushes_wanted, 1, __ATOMIC_ACQ_REL);
    cl_park_wake(&p->parker);
    while (cl_load_acquire(&p->flushes_done) < mine)
        nanosleep(&pause, NULL);
    return -(int)cl_load_relaxed(&p->failed_errno);
}
