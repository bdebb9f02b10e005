/* C code that a kthread does not come back from until the word behind `arg` is set: tests/libos/test_stopping.py. */
#include <corelane/libos/udp.h>

#define ENTRY __attribute__((visibility("default")))

static void wait_for(const void *arg)
{
    while (!cl_load_relaxed((const uint32_t *)arg))
        cl_relax();
}

ENTRY int64_t endless_handler(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)request, (void)len, (void)reply, (void)room;
    wait_for(arg);
    return 0;
}

ENTRY void endless_burst(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    (void)reqs, (void)n;
    wait_for(arg);
}

ENTRY void endless_uthread(void *arg)
{
    wait_for(arg);
}
