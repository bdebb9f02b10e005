/* The inbox: one producer, several consumers that take one or many at a time. Every item is taken once, whole, and
 * those of one taker in order. argv[1]: items. Under TSan in `make test-tsan`. */
#include "libos/net/inbox.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#define TAKERS 3

static struct cl_inbox *in;
static uint32_t done;
static uint8_t *taken;
static struct cl_udp_socket *sockets[2] = {(void *)16, (void *)32};

struct taker {
    pthread_t thread;
    unsigned which;
    uint64_t n;
    const char *wrong;
};

static const char *look(struct taker *t, const struct cl_rx_item *item, uint64_t *last)
{
    uint64_t i = item->rx_tsc;
    if (item->frame.buf != (uint32_t)i || item->payload_len != (uint16_t)i || item->socket != sockets[(i / 5) & 1] ||
        item->frame.data != (uint8_t *)(uintptr_t)(i + 1))
        return "an item is torn";
    if (i < *last)
        return "items of one taker are out of order";
    *last = i;
    t->n++;
    if (__atomic_fetch_add(&taken[i], 1, __ATOMIC_RELAXED))
        return "an item was taken twice";
    return NULL;
}

static void *take(void *arg)
{
    struct taker *t = arg;
    struct cl_rx_item items[8];
    uint64_t last = 0;
    for (;;) {
        bool end = cl_load_acquire(&done); /* acquire: what was put before is seen below */
        unsigned n = t->which == 0 ? cl_inbox_take_one(in, items) : cl_inbox_take_of(in, items, 8, NULL);
        for (unsigned i = 0; i < n && !t->wrong; i++) {
            t->wrong = look(t, &items[i], &last);
            if (items[i].socket != items[0].socket)
                t->wrong = "items of two sockets in one take";
        }
        if (t->wrong || (n == 0 && end))
            return NULL;
    }
}

int main(int argc, char **argv)
{
    uint64_t total = argc > 1 ? strtoull(argv[1], NULL, 0) : 200000;
    struct taker takers[TAKERS] = {0};
    const char *wrong = NULL;
    taken = calloc(total, 1);
    in = cl_inbox_new(CL_INBOX_ITEMS);
    for (unsigned i = 0; i < TAKERS; i++) {
        takers[i].which = i;
        pthread_create(&takers[i].thread, NULL, take, &takers[i]);
    }
    for (uint64_t i = 0; i < total;) {
        unsigned space = cl_inbox_space(in), n = 0;
        for (; n < space && n < 7 && i < total; n++, i++) {
            struct cl_rx_item item = {.frame = {.data = (uint8_t *)(uintptr_t)(i + 1), .buf = (uint32_t)i},
                                      .socket = sockets[(i / 5) & 1],
                                      .rx_tsc = i,
                                      .payload_len = (uint16_t)i};
            cl_inbox_put(in, n, &item);
        }
        cl_inbox_publish(in, n);
        if (n == 0)
            sched_yield();
    }
    cl_store_release(&done, 1);
    uint64_t sum = 0;
    for (unsigned i = 0; i < TAKERS; i++) {
        pthread_join(takers[i].thread, NULL);
        sum += takers[i].n;
        wrong = wrong ? wrong : takers[i].wrong;
    }
    if (!wrong && sum != total)
        wrong = "items were lost";
    printf("%s\n", wrong ? wrong : "ok");
    free(taken);
    free(in);
    return wrong != NULL;
}
