/* Leases and regions on stream sockets, and in the event form: whose the bytes are while all goes well, while sockets
 * are closed and reset, when nothing comes back, and when the runtime ends. The link's MTU is 9000.
 * argv: kthreads of each of the two runtimes. Prints "ok". */
#include "tests/libos/net/c/pair.h"

#include <errno.h>
#include <string.h>

#define PORT 7
#define ECHO 8
#define WAIT (20000 * MS)
#define BYTES (3 << 20)
#define FRAMES 1024 /* of the link */

static uint8_t memory[BYTES];
static struct cl_region *region;
static struct cl_stream *listener;

struct two {
    struct cl_stream *ours, *theirs;
};

static uint8_t byte_at(int64_t at)
{
    return (uint8_t)(at * 131 + (at >> 8) * 7 + 5);
}

static void fill(void)
{
    for (int64_t i = 0; i < BYTES; i++)
        memory[i] = byte_at(i);
}

static void check(const uint8_t *data, int64_t len, int64_t at)
{
    for (int64_t i = 0; i < len; i++)
        CHECK(data[i] == byte_at(at + i), "byte %lld", (long long)(at + i));
}

/* Both are A's. */
static struct two two_ends(void)
{
    struct cl_tcp_addr to = {IP_A, PORT, 0};
    struct two t;
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &t.ours), 0);
    CHECK_EQ(cl_stream_accept(listener, WAIT, &t.theirs), 0);
    CHECK_EQ(cl_stream_set(t.theirs, CL_STREAM_KEEP_FRAMES, 1), 0);
    CHECK_EQ(cl_stream_get(t.theirs, CL_STREAM_KEEP_FRAMES), 1);
    return t;
}

static void close_two(struct two t)
{
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
    CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
}

static struct cl_tcp_counts counts(void)
{
    struct cl_tcp_counts out;
    cl_runtime_tcp_counts(rt_a, &out);
    return out;
}

/* Who writes while another reads. */
static void writer(void *arg)
{
    CHECK_EQ(cl_stream_write_from(arg, region, 0, BYTES, WAIT), BYTES);
    CHECK_EQ(cl_stream_wait_released(arg, -1, WAIT), 0);
    memset(memory, 0, BYTES); /* it is ours: nothing of it is sent any more */
    CHECK_EQ(cl_stream_shutdown(arg, CL_STREAM_WRITE), 0);
    cl_wait_group_done(&all);
}

static void all_of_it_comes(void)
{
    struct two t = two_ends();
    struct cl_lease leases[4] = {{0}};
    int64_t at[4] = {0}, got = 0;
    uint64_t before = counts().bytes_lent;
    fill();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_uthread_spawn(writer, t.ours, NULL), 0);
    for (unsigned i = 0;; i++) { /* some are out at each time */
        unsigned slot = i % 4;
        if (leases[slot].chunk) {
            check(leases[slot].data, leases[slot].len, at[slot]);
            CHECK_EQ(cl_lease_return(rt_a, &leases[slot]), 0);
        }
        CHECK_EQ(cl_stream_lease(t.theirs, &leases[slot], WAIT), 0);
        if (leases[slot].len == 0)
            break;
        at[slot] = got;
        got += leases[slot].len;
    }
    CHECK_EQ(got, BYTES);
    for (unsigned slot = 0; slot < 4; slot++)
        if (leases[slot].chunk) {
            check(leases[slot].data, leases[slot].len, at[slot]);
            CHECK_EQ(cl_lease_return(rt_a, &leases[slot]), 0);
            CHECK_EQ(cl_lease_return(rt_a, &leases[slot]), -EINVAL);
        }
    CHECK_EQ(counts().bytes_lent - before, BYTES);
    CHECK(counts().frames_kept > 0);
    CHECK_EQ(cl_region_lent(region), 0);
    close_two(t);
}

static void a_lease_outlives_its_connection(void)
{
    for (unsigned resets = 0; resets < 2; resets++) {
        struct two t = two_ends();
        struct cl_lease lease;
        fill();
        CHECK_EQ(cl_stream_lease(t.theirs, &lease, 0), -EAGAIN);
        CHECK_EQ(cl_stream_lease(t.theirs, &lease, MS), -ETIMEDOUT);
        CHECK(lease.chunk == NULL);
        CHECK_EQ(cl_stream_write(t.ours, memory, 1000, WAIT), 1000);
        CHECK_EQ(cl_stream_lease(t.theirs, &lease, WAIT), 0);
        int64_t len = lease.len;
        CHECK(len > 0 && len <= 1000);
        CHECK_EQ(resets ? cl_stream_abort(t.ours) : cl_stream_close(t.ours, 0), 0);
        CHECK_EQ(resets ? cl_stream_abort(t.theirs) : cl_stream_close(t.theirs, 0), 0);
        struct two other = two_ends(); /* memory is used again, but not the lease's */
        uint8_t zeros[2000] = {0};
        CHECK_EQ(cl_stream_write(other.ours, zeros, sizeof zeros, WAIT), (int64_t)sizeof zeros);
        CHECK(cl_stream_peek(other.theirs, zeros, sizeof zeros, WAIT) > 0);
        check(lease.data, len, 0);
        CHECK_EQ(cl_lease_return(rt_a, &lease), 0);
        CHECK_EQ(cl_stream_abort(other.ours), 0);
        CHECK_EQ(cl_stream_close(other.theirs, 0), 0);
    }
}

/* The window closes over what is leased, and opens when it comes back; nobody else is held up. */
static void leases_that_do_not_come_back_are_bounded(void)
{
    enum { LIMIT = 60000 };
    static struct cl_lease leases[1000];
    struct two t, other = two_ends();
    char byte;
    unsigned n = 0;
    int64_t leased = 0, rc;
    CHECK_EQ(cl_stream_set(listener, CL_STREAM_RECEIVE_BUFFER, LIMIT), 0);
    t = two_ends();
    uint64_t out = counts().leased - counts().unleased;
    CHECK_EQ(out, 0);
    fill();
    int64_t wrote = cl_stream_write_from(t.ours, region, 0, BYTES, 50 * MS);
    CHECK(wrote > 0 && wrote < BYTES);
    while ((rc = cl_stream_lease(t.theirs, &leases[n], 50 * MS)) == 0) {
        check(leases[n].data, leases[n].len, leased);
        leased += leases[n++].len;
        CHECK(n < 1000);
    }
    CHECK(rc == -ETIMEDOUT || rc == -ENOBUFS);
    CHECK(leased <= LIMIT + 256 * 1024 && n > 0, "%lld bytes in %u leases", (long long)leased, n);
    CHECK_EQ(counts().leased - counts().unleased, n);
    CHECK_EQ(cl_stream_write(other.ours, "x", 1, WAIT), 1);
    CHECK_EQ(cl_stream_read(other.theirs, &byte, 1, WAIT), 1);
    while (n)
        CHECK_EQ(cl_lease_return(rt_a, &leases[--n]), 0);
    while (leased < wrote) { /* it goes on */
        struct cl_lease one;
        CHECK_EQ(cl_stream_lease(t.theirs, &one, WAIT), 0);
        check(one.data, one.len, leased);
        leased += one.len;
        CHECK_EQ(cl_lease_return(rt_a, &one), 0);
    }
    CHECK_EQ(cl_stream_wait_released(t.ours, -1, WAIT), 0);
    CHECK_EQ(cl_stream_set(listener, CL_STREAM_RECEIVE_BUFFER, 256 << 10), 0);
    close_two(t);
    close_two(other);
}

/* All waits, and nobody reads: beyond a bound it is copied out of the NIC's buffers. Where something was sent again, as
 * under sanitizers on a busy machine, what came behind the gap was copied anyway. */
static void a_peer_cannot_keep_the_nics_buffers(void)
{
    struct two t = two_ends();
    struct cl_tcp_counts before = counts(), after;
    static uint8_t data[65536];
    CHECK_EQ(cl_stream_set(t.theirs, CL_STREAM_RECEIVE_BUFFER, 2 * BYTES), 0);
    fill();
    CHECK_EQ(cl_stream_write_from(t.ours, region, 0, BYTES, WAIT), BYTES);
    CHECK_EQ(cl_stream_wait_released(t.ours, -1, WAIT), 0);
    after = counts();
    CHECK(after.resent > before.resent || after.frames_refused > before.frames_refused);
    CHECK(after.frames_kept - before.frames_kept <= ends[0]->n_buffers / 8);
    for (int64_t got = 0, n; got < BYTES; got += n) {
        CHECK((n = cl_stream_read(t.theirs, data, sizeof data, WAIT)) > 0);
        check(data, n, got);
    }
    close_two(t);
}

static void what_is_lent_comes_back_however_it_ends(void)
{
    struct two t = two_ends();
    fill();
    CHECK_EQ(cl_stream_write_from(t.ours, region, 1, BYTES, 0), -EINVAL);
    CHECK_EQ(cl_stream_write_from(t.ours, region, -1, 1, 0), -EINVAL);
    CHECK_EQ(cl_stream_wait_released(t.ours, -1, 0), 0);
    int64_t wrote = cl_stream_write_from(t.ours, region, 0, BYTES, 20 * MS); /* nobody reads */
    CHECK(wrote > 0 && wrote < BYTES);
    CHECK_EQ(cl_stream_wait_released(t.ours, wrote, 0), -EAGAIN);
    CHECK_EQ(cl_stream_wait_released(t.ours, wrote, MS), -ETIMEDOUT);
    CHECK(cl_region_lent(region) > 0);
    CHECK_EQ(cl_region_delete(region), -EBUSY);
    CHECK_EQ(cl_stream_abort(t.theirs), 0);
    CHECK_EQ(cl_stream_wait_released(t.ours, wrote, WAIT), -ECONNRESET);
    CHECK_EQ(cl_region_lent(region), 0);
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
    t = two_ends();
    wrote = cl_stream_write_from(t.ours, region, 0, BYTES, 20 * MS);
    CHECK_EQ(cl_stream_abort(t.ours), 0);
    while (cl_region_lent(region)) /* by the turn that resets it */
        cl_uthread_yield();
    CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
    t = two_ends(); /* closed with all of it to be sent: it is, from where it lies */
    wrote = cl_stream_write_from(t.ours, region, 0, 200000, WAIT);
    CHECK_EQ(wrote, 200000);
    CHECK_EQ(cl_stream_close(t.ours, 0), 0);
    for (int64_t got = 0; got < wrote;) {
        struct cl_lease one;
        CHECK_EQ(cl_stream_lease(t.theirs, &one, WAIT), 0);
        check(one.data, one.len, got);
        got += one.len;
        CHECK_EQ(cl_lease_return(rt_a, &one), 0);
    }
    while (cl_region_lent(region))
        CHECK_EQ(cl_uthread_sleep_ns(MS), 0);
    CHECK_EQ(cl_stream_close(t.theirs, 0), 0);
}

/* The event form, over the link: B gives back what came, as leases and from a region. */
struct echo {
    struct cl_lease lease;
    int64_t released;
    struct cl_sem done, returned;
};

static int64_t echo_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    struct echo *e = arg;
    struct cl_lease more;
    CHECK(!e->lease.chunk);
    CHECK_EQ(cl_tcp_lease(c, &e->lease), 0);
    CHECK_EQ(cl_tcp_lease(c, &more), -EALREADY);
    CHECK(e->lease.len == len && memcmp(data, e->lease.data, (size_t)len) == 0);
    CHECK_EQ(cl_tcp_write_from(c, region, 0, len), len);
    return 0; /* it counts as taken all the same */
}

static void echo_released(struct cl_tcp_conn *c, int64_t bytes, void *arg)
{
    struct echo *e = arg;
    (void)c;
    e->released += bytes;
    if (e->released == 8960)
        cl_sem_post(&e->done);
}

static void echo_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static const struct cl_tcp_events echo_events = {.data = echo_data, .eof = echo_eof, .released = echo_released};

static void give_back(void *arg)
{
    struct echo *e = arg;
    CHECK_EQ(cl_lease_return(rt_b, &e->lease), 0);
    cl_sem_post(&e->returned);
}

static void event_form(struct echo *e)
{
    static uint8_t answer[8960];
    struct cl_tcp_addr to = {IP_B, ECHO, 0};
    struct cl_tcp_info info;
    struct cl_stream *s;
    int64_t got = 0;
    fill();
    CHECK_EQ(cl_stream_connect(rt_a, NULL, &to, WAIT, &s), 0);
    CHECK_EQ(cl_stream_info(s, &info), 0);
    CHECK_EQ(info.snd_mss, 8948); /* of an MTU of 9000, less headers and timestamps */
    CHECK_EQ(cl_stream_set(s, CL_STREAM_NO_DELAY, 1), 0);
    while (got < 8960) { /* in segments of its own size, one answered before the next */
        int64_t n = got ? 12 : 8948, end = got + n;
        CHECK_EQ(cl_stream_write(s, memory + got, n, WAIT), n);
        for (int64_t part; got < end; got += part)
            CHECK((part = cl_stream_read(s, answer + got, end - got, WAIT)) > 0);
        check(answer + end - n, n, 0);
        check(e->lease.data, e->lease.len, end - n);
        CHECK_EQ(e->lease.len, n); /* one frame of the largest size, and a small one that was copied */
        CHECK_EQ(cl_lease_return(rt_b, &e->lease), -EDEADLK); /* we are a kthread, but not B's */
        CHECK_EQ(cl_runtime_spawn(rt_b, give_back, e), 0);
        CHECK_EQ(cl_sem_wait(&e->returned), 0);
    }
    CHECK_EQ(cl_sem_wait(&e->done), 0);
    CHECK_EQ(cl_stream_close(s, WAIT), 0);
}

/* Poll sets tell of it, for each of two forms as they do. */
static void poll_sets_tell_of_what_is_released(uint32_t how)
{
    struct two t = two_ends();
    struct cl_poll *set;
    struct cl_poll_event e;
    char data[4096];
    CHECK_EQ(cl_poll_new(rt_a, &set), 0);
    CHECK_EQ(cl_poll_add_stream(set, t.ours, 32, how, 1), -EINVAL);
    CHECK_EQ(cl_poll_add_stream(set, t.ours, CL_POLL_RELEASED, how, 1), 0);
    CHECK_EQ(cl_poll_wait(set, &e, 1, 0), 0);
    for (int64_t sum = 0, told = 0; sum < 10 * (int64_t)sizeof data;) {
        CHECK_EQ(cl_stream_write_from(t.ours, region, sum, sizeof data, WAIT), sizeof data);
        sum += sizeof data;
        for (int64_t got = 0, n; got < (int64_t)sizeof data; got += n) {
            n = cl_stream_read(t.theirs, data, sizeof data, WAIT);
            CHECK(n > 0);
        }
        while (told < sum) {
            CHECK_EQ(cl_poll_wait(set, &e, 1, WAIT), 1);
            CHECK_EQ(e.ready, CL_POLL_RELEASED);
            told = cl_stream_released(t.ours);
        }
        CHECK_EQ(told, sum);
    }
    CHECK_EQ(cl_poll_wait(set, &e, 1, 0), 0);
    CHECK_EQ(cl_poll_remove_stream(set, t.ours), 0);
    CHECK_EQ(cl_poll_delete(set), 0);
    CHECK_EQ(cl_stream_released(listener), -EBADF);
    close_two(t);
}

static struct echo echo;
static struct two last;
static struct cl_lease last_lease;

static void root(void *arg)
{
    (void)arg;
    all_of_it_comes();
    a_lease_outlives_its_connection();
    leases_that_do_not_come_back_are_bounded();
    a_peer_cannot_keep_the_nics_buffers();
    what_is_lent_comes_back_however_it_ends();
    poll_sets_tell_of_what_is_released(CL_POLL_LEVEL);
    poll_sets_tell_of_what_is_released(CL_POLL_EDGE);
    event_form(&echo);
    last = two_ends();
    CHECK(cl_stream_write_from(last.ours, region, 0, BYTES, 20 * MS) > 0);
    CHECK_EQ(cl_stream_lease(last.theirs, &last_lease, WAIT), 0);
    cl_wait_group_done(&all);
}

int main(int argc, char **argv)
{
    unsigned kthreads = argc > 1 ? (unsigned)atoi(argv[1]) : 2;
    struct cl_memory_config link = {.queues = {kthreads, 1},
                                    .ipv4 = {IP_A, IP_B},
                                    .ipv4_prefix = 16,
                                    .mtu = 9000,
                                    .buffer_bytes = 9216,
                                    .buffers = FRAMES * kthreads};
    CHECK(cl_memory_link_new(&link, ends, err) == 0, "%s", err);
    buffers = cl_nic_buffers_free(ends[0]) + cl_nic_buffers_free(ends[1]);
    rt_a = pair_end(0, kthreads, 0);
    rt_b = pair_end(1, 1, 0);
    cl_wait_group_init(&all);
    cl_sem_init(&echo.done, 0);
    cl_sem_init(&echo.returned, 0);
    CHECK_EQ(cl_region_new(NULL, 1, &region), -EINVAL);
    CHECK_EQ(cl_region_new(memory, 0, &region), -EINVAL);
    CHECK_EQ(cl_region_new(memory, BYTES, &region), 0);
    CHECK_EQ(cl_stream_listen(rt_a, PORT, 128, &listener), 0);
    CHECK_EQ(cl_runtime_listen_tcp(rt_b, ECHO, 8, &echo_events, &echo), 0);
    pair_start();
    cl_wait_group_add(&all, 1);
    CHECK_EQ(cl_runtime_spawn(rt_a, root, NULL), 0);
    pair_wait();
    pair_stop();
    CHECK_EQ(cl_region_lent(region), 0);
    check(last_lease.data, last_lease.len, 0); /* until it is returned */
    CHECK_EQ(cl_lease_return(rt_a, &last_lease), 0);
    close_two(last);
    struct cl_chunk_stats send, receive;
    CHECK_EQ(cl_runtime_chunk_stats(rt_a, CL_CHUNKS_TCP_SEND, &send), 0);
    CHECK_EQ(cl_runtime_chunk_stats(rt_a, CL_CHUNKS_TCP_RECEIVE, &receive), 0);
    CHECK_EQ(send.held_bytes + receive.held_bytes, 0);
    CHECK_EQ(counts().leased, counts().unleased);
    CHECK_EQ(cl_region_delete(region), 0);
    pair_delete();
    printf("ok\n");
    return 0;
}
