/* One transfer in one direction over a link with a rate: every byte comes, and how long that took on the link's clock.
 *
 * argv: seed, bytes, loss, twice, late (in 1/1000), round trip in ns, Gb/s, options (CL_TCPO_*). Prints lines of a name
 * and a value: the time from the first byte written to the last one read, the longest in which nothing came, counts. */
#include "world.h"

#include <inttypes.h>

static uint64_t bytes, wrote, got, began_ns, last_ns, longest_ns;
static bool ended[2];

static uint8_t byte_at(uint64_t at)
{
    return (uint8_t)(at * 131 + (at >> 8) * 7 + 5);
}

static void write_more(struct cl_tcp_conn *c)
{
    uint8_t data[8192];
    while (wrote < bytes) {
        uint64_t n = cl_min(bytes - wrote, sizeof data);
        for (uint64_t i = 0; i < n; i++)
            data[i] = byte_at(wrote + i);
        int64_t took = cl_tcp_write(c, data, (int64_t)n);
        CHECK(took >= 0);
        wrote += (uint64_t)took;
        if ((uint64_t)took < n)
            return;
    }
    cl_tcp_shutdown(c);
}

static void sender_opened(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    began_ns = last_ns = now_ns;
    write_more(c);
}

static void sender_writable(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    write_more(c);
}

static int64_t on_data(struct cl_tcp_conn *c, const uint8_t *data, int64_t len, void *arg)
{
    (void)c, (void)arg;
    for (int64_t i = 0; i < len; i++)
        CHECK(data[i] == byte_at(got + (uint64_t)i), "byte %" PRIu64, got + (uint64_t)i);
    got += (uint64_t)len;
    longest_ns = cl_max(longest_ns, now_ns - last_ns);
    last_ns = now_ns;
    return len;
}

static void on_eof(struct cl_tcp_conn *c, void *arg)
{
    (void)arg;
    cl_tcp_close(c);
}

static void on_ended(struct cl_tcp_conn *c, int error, void *arg)
{
    (void)c;
    CHECK_EQ(error, 0);
    ended[(uintptr_t)arg] = true;
}

static const struct cl_tcp_events sender = {
    .opened = sender_opened, .writable = sender_writable, .eof = on_eof, .ended = on_ended};
static const struct cl_tcp_events reader = {.data = on_data, .eof = on_eof, .ended = on_ended};

int main(int argc, char **argv)
{
    CHECK(argc == 9);
    world_random = strtoull(argv[1], NULL, 0) * 0x9e3779b97f4a7c15ull + 1;
    bytes = strtoull(argv[2], NULL, 0);
    network = (struct network){.loss = (unsigned)atoi(argv[3]), .twice = (unsigned)atoi(argv[4])};
    network.late = (unsigned)atoi(argv[5]);
    network.delay_ns = strtoull(argv[6], NULL, 0) / 2;
    network.late_ns = network.delay_ns;
    network.gbps = strtoull(argv[7], NULL, 0);
    verbose = getenv("SHOW") != NULL;
    for (unsigned h = 0; h < 2; h++) {
        host_init(h, 2000);
        struct cl_tcp_settings *s = &hosts[h].stack.settings;
        s->options = (uint8_t)atoi(argv[8]);
        s->send_limit = s->receive_limit = 1 << 20;
        s->time_wait_ms = 1000000;
    }
    listen_on(&hosts[1], 80, &reader, (void *)1);
    connect_from(&hosts[0], 1000, 80, &sender, (void *)0);
    uint64_t end_ns = now_ns + 20000 * SECOND;
    while (now_ns < end_ns && !world_is_quiet())
        world_step(end_ns);
    CHECK(got == bytes && ended[0] && ended[1], "%" PRIu64 " bytes came", got);
    const struct cl_tcp_counts *c = &hosts[0].counts;
    printf("took_ns %" PRIu64 "\nlongest_ns %" PRIu64 "\n", last_ns - began_ns, longest_ns);
    printf("sent %" PRIu64 "\nlost %" PRIu64 "\nresent %" PRIu64 "\n", c->segments_out, n_lost, c->resent);
    printf("timeouts %" PRIu64 "\nrecoveries %" PRIu64 "\n", c->timeouts, c->fast_retransmits);
    printf("tail_probes %" PRIu64 "\ndsacks %" PRIu64 "\n", c->tail_probes, c->dsacks);
    printf("undone %" PRIu64 "\nrefused_records %" PRIu64 "\n", c->undone, c->refused_records);
    world_end();
    return 0;
}
