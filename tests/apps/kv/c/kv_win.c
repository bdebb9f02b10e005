/* Threads ask for the same keys, which are missing or stale: each time one of them is told to store the item anew.
 *
 * kv_win THREADS KEYS: every thread asks for every key with mg N, then with mg after md I; counts who won. */
#include "apps/kv/command.h"
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct cl_kv *store;
static unsigned n_threads, n_keys;
static pthread_barrier_t barrier;

struct worker {
    pthread_t thread;
    unsigned id;
    unsigned long won_missing, won_stale;
};

/* Whether the answer to one command says that this client won. */
static bool wins(unsigned id, const char *command)
{
    uint8_t answer[4096];
    uint64_t consumed;
    struct cl_kv_session session = {.thread = cl_kv_thread(store, id)};
    struct cl_kv_out out = {.data = answer, .room = sizeof(answer)};
    cl_kv_process(&session, (const uint8_t *)command, strlen(command), &consumed, &out);
    answer[out.len] = 0;
    if (memcmp(answer, "HD", 2) != 0) {
        fprintf(stderr, "%s is answered %s", command, (char *)answer);
        abort();
    }
    return strstr((char *)answer, " W") != NULL;
}

static void *work(void *arg)
{
    struct worker *w = arg;
    char command[64];
    for (unsigned k = 0; k < n_keys; k++) {
        snprintf(command, sizeof(command), "mg key-%u N0\r\n", k);
        w->won_missing += wins(w->id, command);
    }
    pthread_barrier_wait(&barrier);
    for (unsigned k = w->id; k < n_keys; k += n_threads) {
        snprintf(command, sizeof(command), "md key-%u I\r\n", k);
        wins(w->id, command);
    }
    pthread_barrier_wait(&barrier);
    for (unsigned k = 0; k < n_keys; k++) {
        snprintf(command, sizeof(command), "mg key-%u\r\n", k);
        w->won_stale += wins(w->id, command);
    }
    return NULL;
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    n_threads = (unsigned)atoi(argv[1]);
    n_keys = (unsigned)atoi(argv[2]);
    struct cl_kv_config config = {.memory_bytes = 16 << 20, .threads = n_threads, .partitions = 2, .seed = 1};
    struct worker *workers = calloc(n_threads, sizeof(*workers));
    unsigned long missing = 0, stale = 0;
    char err[256];
    if (!workers || cl_kv_new(&config, &store, err))
        return 1;
    pthread_barrier_init(&barrier, NULL, n_threads);
    for (unsigned i = 0; i < n_threads; i++) {
        workers[i].id = i;
        pthread_create(&workers[i].thread, NULL, work, &workers[i]);
    }
    for (unsigned i = 0; i < n_threads; i++) {
        pthread_join(workers[i].thread, NULL);
        missing += workers[i].won_missing;
        stale += workers[i].won_stale;
    }
    bool sound = cl_kv_check(store, err) == 0;
    cl_kv_delete(store);
    free(workers);
    printf("%lu and %lu wins of %u keys\n", missing, stale, n_keys);
    return sound && missing == n_keys && stale == n_keys ? 0 : 1;
}
