/* A thief polls a queue by which its owner sends, allocates and frees all the while. The NIC is the caller's. */
#include <corelane/drivers/nic.h>

#include <pthread.h>
#include <string.h>

struct theft {
    struct cl_nic *nic;
    uint64_t stolen;
    uint32_t done; /* writer: the owner (release) */
};

/* By queue 1, whose owner we are; from queue 0, under a lock that nobody else wants. */
static void *steal(void *arg)
{
    struct theft *t = arg;
    struct cl_frame frames[32];
    while (!cl_load_acquire(&t->done))
        for (unsigned q = 0; q < 2; q++) {
            unsigned n = t->nic->ops->rx_burst(t->nic, q, frames, 32);
            t->nic->ops->free(t->nic, 1, frames, n);
            t->stolen += n;
        }
    return NULL;
}

/* Send `frame` so many times by queue 0, and give as many buffers back unsent. Returns frames that the thief got from
 * both queues; < 0: there is no second thread. */
CL_API int64_t thief_run(struct cl_nic *nic, const uint8_t *frame, uint32_t len, uint32_t times)
{
    struct theft t = {.nic = nic};
    struct cl_frame frames[8];
    pthread_t thread;
    if (pthread_create(&thread, NULL, steal, &t))
        return -1;
    for (uint32_t sent = 0; sent < times;) {
        unsigned n = nic->ops->alloc(nic, 0, frames, 8), half = n / 2;
        for (unsigned i = 0; i < half; i++) {
            memcpy(frames[i].data, frame, len);
            frames[i].len = (uint16_t)len;
        }
        unsigned taken = nic->ops->tx_burst(nic, 0, frames, half);
        nic->ops->free(nic, 0, frames + taken, n - taken);
        sent += taken;
    }
    cl_store_release(&t.done, 1);
    pthread_join(thread, NULL);
    /* What still comes, and what is still to be taken back. */
    for (unsigned idle = 0; idle < 1000; idle++)
        for (unsigned q = 0; q < 2; q++) {
            unsigned n = nic->ops->rx_burst(nic, q, frames, 8);
            nic->ops->free(nic, q, frames, n);
            idle = n ? 0 : idle;
        }
    return (int64_t)t.stolen;
}
