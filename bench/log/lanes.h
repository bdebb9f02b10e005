/* A disk of lanes: so many writes side by side, on a clock of the caller's. What finds no lane free waits in line.
 *
 * It keeps what lies at its beginning, a log's superblocks, and reads zeros elsewhere: nothing else is read back by who
 * uses it. One thread. The caller's clock goes on by what a submission costs. */
#ifndef CORELANE_BENCH_LOG_LANES_H
#define CORELANE_BENCH_LOG_LANES_H

#include <corelane/drivers/blk.h>

#define BENCH_LANES_MOST 64
#define BENCH_LANES_FLIGHTS 64
#define BENCH_LANES_KEPT 8192

// cffi: begin
/* A write takes write_ns, kib_ns more for each KiB, and beside_ns more for each other one in flight when it comes. */
struct cl_bench_lanes_config {
    uint32_t lanes; /* 1 to 64 */
    uint32_t submit_ns;
    uint64_t write_ns, kib_ns, beside_ns;
};
// cffi: end

struct bench_lanes {
    struct cl_blk blk; /* first */
    struct cl_bench_lanes_config config;
    uint64_t *now_ns, *worker_ns; /* worker_ns: what submissions cost, added up */
    uint64_t busy_ns;             /* of all lanes together */
    uint64_t free_ns[BENCH_LANES_MOST];
    struct {
        struct cl_blk_req *req;
        uint64_t at_ns;
    } flying[BENCH_LANES_FLIGHTS];
    unsigned n_flying;
    int event_fd;
    uint8_t kept[BENCH_LANES_KEPT];
};

/* -errno: no descriptor. */
int bench_lanes_begin(struct bench_lanes *d, const struct cl_bench_lanes_config *config, uint64_t *now_ns,
                      uint64_t *worker_ns);
void bench_lanes_end(struct bench_lanes *d);

#endif
