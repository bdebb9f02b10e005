/* A program that knows nothing of corelane: calls on sockets, drawn from a seed, and what each returned. The test runs
 * it on Linux' sockets and on ours (../test_fuzz.py): the same seed, the same lines.
 *
 *   fuzz ADDRESS SEED STEPS ROLES    ROLES 1: no socket that has listened is asked to connect, or the other way round
 *
 * Each call is made by one of three threads, one at a time. What is drawn: fuzz_streams.h, fuzz_datagrams.h,
 * fuzz_names.h, fuzz_waits.h, fuzz_wild.h; what is known of the sockets: fuzz_model.h. Nothing that would wait is
 * called in a way that waits. */
#include "fuzz_datagrams.h"
#include "fuzz_wild.h"

#include <pthread.h>
#include <semaphore.h>
#include <signal.h>

#define THREADS 3 /* main's, and others */

static const struct choice {
    void (*fn)(void);
    unsigned weight;
} choices[] = {{make, 4},
               {name, 3},
               {open_listener, 2},
               {open_connection, 4},
               {end_connection, 1},
               {take_connection, 4},
               {write_some, 6},
               {write_held, 2},
               {write_from, 2},
               {read_some, 6},
               {read_into, 1},
               {shut, 2},
               {shut_all, 2},
               {set_linger, 1},
               {fork_one, 1},
               {copy, 2},
               {close_one, 1},
               {copy_over, 1},
               {set_blocking, 1},
               {names, 2},
               {odd_names, 1},
               {options, 4},
               {options_of_states, 2},
               {look, 3},
               {look_at_all, 2},
               {watch_one, 6},
               {nest, 1},
               {wait_now, 4},
               {join_datagrams, 2},
               {part_datagrams, 1},
               {send_datagram, 4},
               {receive_datagram, 3},
               {shut_datagrams, 1},
               {wild, 5}};
#define CHOICES (sizeof choices / sizeof *choices)

static void step(void)
{
    unsigned sum = 0, at;
    for (unsigned i = 0; i < CHOICES; i++)
        sum += choices[i].weight;
    at = draw(sum);
    const struct choice *c = choices;
    for (; at >= c->weight; c++)
        at -= c->weight;
    c->fn();
}

static sem_t begins[THREADS], done;

static void *work(void *arg)
{
    for (;;) {
        while (sem_wait(arg))
            ;
        step();
        sem_post(&done);
    }
    return NULL;
}

static void step_of(unsigned thread)
{
    if (thread == 0) {
        step();
        return;
    }
    sem_post(&begins[thread]);
    while (sem_wait(&done))
        ;
}

int main(int argc, char **argv)
{
    pthread_t thread;
    here.sin_family = AF_INET;
    if (argc != 5 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1)
        return 2;
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    signal(SIGPIPE, SIG_IGN);
    state = (uint64_t)atoll(argv[2]);
    keeps_roles = atoi(argv[4]);
    sem_init(&done, 0, 0);
    for (unsigned i = 1; i < THREADS; i++) {
        sem_init(&begins[i], 0, 0);
        if (pthread_create(&thread, NULL, work, &begins[i]))
            return 1;
    }
    for (unsigned i = 0; i < SETS; i++)
        epfds[i] = epoll_create1(0);
    for (int i = 0; i < atoi(argv[3]); i++) {
        step_of(draw(THREADS));
        settle();
    }
    printf("end\n");
    return 0;
}
