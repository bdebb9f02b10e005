/* See flood.h. */
#include "flood.h"

#include "../../runtime/memory.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TIMEOUT_MS 5000
#define BUFFERS 2048 /* more than an L2 cache holds: copying a full frame costs the loop what it costs in life */
#define DRAIN_NS 2000000000ll

struct cl_flood {
    struct cl_control_accept accept;
    struct cl_memory arena, state;
    int socket, doorbell;
    struct cl_ring_tx ring;
    const struct cl_state_loop *loop;
    uint8_t *buffer;
};

static int64_t now_ns(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (int64_t)ts.tv_sec * 1000000000 + ts.tv_nsec;
}

static void take_over(struct cl_flood *f)
{
    const struct cl_arena_layout *l = &f->accept.layout;
    uint8_t *base = f->arena.base;
    struct cl_arena_kthread *lines = (struct cl_arena_kthread *)(base + l->lines_offset);
    const struct cl_state_header *s = f->state.base;
    cl_ring_tx_init(&f->ring, (struct cl_desc *)(base + l->tx_offset), &lines->tx_head, l->tx_slots);
    f->loop = (const struct cl_state_loop *)((const uint8_t *)f->state.base + s->loops_offset) + f->accept.loop;
    f->buffer = base + l->buffers_offset + (size_t)l->n_rx * l->buffer_stride;
}

int cl_flood_new(const char *socket_path, const char *name, uint32_t slots, struct cl_flood **out, char *err)
{
    struct cl_control_hello hello = {.n_kthreads = 1, .rx_slots = 64, .tx_slots = slots, .n_rx = 64, .n_tx = BUFFERS};
    struct cl_flood *f = calloc(1, sizeof *f);
    int fds[CL_CONTROL_FDS] = {-1, -1, -1};
    if (!f)
        return snprintf(err, CL_CONTROL_ERR_BYTES, "out of memory"), -ENOMEM;
    f->doorbell = -1;
    snprintf(hello.name, sizeof hello.name, "%s", name);
    int rc = f->socket = cl_control_connect(socket_path, TIMEOUT_MS, err);
    if (rc >= 0)
        rc = cl_control_attach(f->socket, &hello, &f->accept, fds, TIMEOUT_MS, err);
    if (rc >= 0) {
        f->doorbell = fds[2];
        rc = cl_memory_map(fds[0], f->accept.layout.total_bytes, true, &f->arena, err);
        if (rc < 0)
            close(fds[0]);
        int rc2 = cl_memory_map(fds[1], f->accept.state_bytes, false, &f->state, err);
        if (rc2 < 0)
            close(fds[1]);
        rc = rc < 0 ? rc : rc2;
    }
    if (rc < 0) {
        cl_flood_delete(f);
        return rc;
    }
    take_over(f);
    *out = f;
    return 0;
}

void cl_flood_address(const struct cl_flood *f, uint8_t *mac, uint32_t *ipv4)
{
    memcpy(mac, f->accept.mac, 6);
    *ipv4 = f->accept.ipv4;
}

/* Write a slot as cheaply as a core can: past the caches, so that its line need not be fetched from the loop's core
 * first, which took six times as long. Every lap writes the same payload, so a slot of which the reader sees the word
 * alone is whole all the same. */
static void write_past_caches(struct cl_desc *d, uint64_t word, uint64_t payload)
{
#if defined(__x86_64__)
    _mm_stream_si128((__m128i *)d, _mm_set_epi64x((long long)payload, (long long)word));
#else
    cl_store_relaxed(&d->payload, payload);
    cl_store_release(&d->word, word);
#endif
}

static void fill(struct cl_flood *f, uint32_t len, struct cl_flood_result *out)
{
    const uint32_t first = f->accept.layout.n_rx;
    const uint64_t none = cl_tx_payload(CL_SHM_NO_BUFFER, CL_SHM_NO_BUFFER);
    uint32_t space = cl_ring_tx_space(&f->ring, f->ring.size);
    out->fills++;
    out->empty += space == f->ring.size;
    out->sent += space;
    for (; space; space--, f->ring.tail++) {
        uint64_t word = cl_tx_word(CL_TX_SEND, first + f->ring.tail % BUFFERS, 0, len);
        write_past_caches(&f->ring.slots[f->ring.tail & (f->ring.size - 1)],
                          word | cl_ring_phase(f->ring.size, f->ring.tail), none);
    }
    uint64_t one = 1;
    cl_fence_seq_cst(); /* as drivers/port/port.c, announce() */
    cl_doorbell_set(cl_arena_doorbell_of(f->arena.base), 0);
    if (cl_load_relaxed(&f->loop->sleeping) && write(f->doorbell, &one, sizeof one) < 0)
        return;
}

/* What fill does for `n` frames, but with the wrong phase: nobody sees them. */
static void fill_silently(struct cl_flood *f, uint32_t len, uint32_t n, struct cl_flood_result *out)
{
    const uint64_t word = cl_tx_word(CL_TX_SEND, f->accept.layout.n_rx, 0, len);
    for (uint32_t i = 0; i < n && i < f->ring.size; i++) {
        uint32_t pos = f->ring.tail + i;
        write_past_caches(&f->ring.slots[pos & (f->ring.size - 1)],
                          word | (CL_RING_PHASE ^ cl_ring_phase(f->ring.size, pos)), out->fills);
    }
    out->fills++;
}

int cl_flood_run(struct cl_flood *f, const uint8_t *frame, uint32_t len, int64_t duration_ns, int64_t pause_ns,
                 uint32_t silent, struct cl_flood_result *out)
{
    const struct timespec pause = {pause_ns / 1000000000, pause_ns % 1000000000};
    int64_t end = now_ns() + duration_ns;
    char byte;
    *out = (struct cl_flood_result){0};
    if (len > f->accept.mtu + 14u || len < 14)
        return -EINVAL;
    for (uint32_t i = 0; i < BUFFERS; i++)
        memcpy(f->buffer + (size_t)i * f->accept.layout.buffer_stride, frame, len);
    while (now_ns() < end) {
        if (silent)
            fill_silently(f, len, silent, out);
        else
            fill(f, len, out);
        nanosleep(&pause, NULL);
        if (recv(f->socket, &byte, 1, MSG_DONTWAIT | MSG_PEEK) == 0)
            return -EPIPE;
    }
    out->empty -= out->empty > 0; /* the first fill */
    end = now_ns() + DRAIN_NS;
    while (cl_ring_tx_space(&f->ring, f->ring.size) < f->ring.size) {
        if (now_ns() > end)
            return -ETIMEDOUT;
        nanosleep(&pause, NULL);
    }
    return 0;
}

void cl_flood_delete(struct cl_flood *f)
{
    if (!f)
        return;
    cl_memory_close(&f->arena);
    cl_memory_close(&f->state);
    if (f->doorbell >= 0)
        close(f->doorbell);
    if (f->socket >= 0)
        close(f->socket);
    free(f);
}
