/* A program that knows nothing of corelane: each two calls, one behind the other, on a socket in each state: open, at
 * its end, reset, refused, given up, none yet. It prints the results; the test runs it on Linux' sockets and on ours,
 * and compares (../test_behind.py).
 *
 *   behind ADDRESS PART PARTS   one of so many parts of all
 *
 * The socket is the main thread's, what its peer does another one's: both wait for connections, so that each keeps a
 * kthread if there are several. Nothing is waited for: by Linux what is sent to the same machine has come when the call
 * returns. */
#include "pairs.h"

#include <fcntl.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdbool.h>
#include <sys/ioctl.h>

static int c, s, l; /* the socket that is asked, its peer, or -1, and a listener */
static struct sockaddr_in at;
static const struct sockaddr nobody = {.sa_family = AF_UNSPEC};
static char data[64];

/* What the other thread does. */

static void (*deed)(void);
static sem_t begins, done;

static void wait_a_moment(void)
{
    struct sockaddr_in name;
    int fd = listener(&name);
    poll(&(struct pollfd){fd, POLLIN, 0}, 1, 1);
    close(fd);
}

static void *do_deeds(void *arg)
{
    (void)arg;
    wait_a_moment();
    for (;;) {
        while (sem_wait(&begins))
            ;
        deed();
        sem_post(&done);
    }
    return NULL;
}

static void by_other(void (*fn)(void))
{
    deed = fn;
    sem_post(&begins);
    while (sem_wait(&done))
        ;
}

static void set_reset(int fd)
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger){1, 0}, sizeof(struct linger));
}

static void take(void)
{
    s = accept(l, NULL, NULL);
}
static void take_wrong(void)
{
    socklen_t wrong = (socklen_t)-1;
    if (accept(l, (struct sockaddr *)&at, &wrong) >= 0)
        printf("accepted all the same\n");
}
static void write_it(void)
{
    if (send(s, data, 3, MSG_NOSIGNAL) != 3)
        printf("not written\n");
}
static void end_it(void)
{
    close(s);
    s = -1;
}
static void reset_it(void)
{
    set_reset(s);
    end_it();
}
static void shut_it(void)
{
    shutdown(s, SHUT_WR);
}
static void shut_all_of_it(void)
{
    shutdown(s, SHUT_RDWR);
}
static void give_it_up(void)
{
    connect(s, &nobody, sizeof nobody);
}
static void end_listener(void)
{
    close(l);
    l = -1;
}

/* States. */

static void fresh(void)
{
    c = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK, 0);
}
static void bound(void)
{
    fresh();
    bind(c, (struct sockaddr *)&here, sizeof here);
}
static void listens(void)
{
    bound();
    listen(c, 4);
}
static void shut_before(void)
{
    fresh();
    shutdown(c, SHUT_RDWR);
}
static void connects(void)
{
    fresh();
    connect(c, (struct sockaddr *)&at, sizeof at);
}
static void refused(void)
{
    by_other(end_listener);
    connects();
}
static void refused_at_once(void)
{
    by_other(end_listener);
    c = socket(AF_INET, SOCK_STREAM, 0);
    connect(c, (struct sockaddr *)&at, sizeof at);
    fcntl(c, F_SETFL, O_NONBLOCK);
}
static void waits(void)
{
    c = socket(AF_INET, SOCK_STREAM, 0);
    connect(c, (struct sockaddr *)&at, sizeof at);
    fcntl(c, F_SETFL, O_NONBLOCK);
}
static void opened(void)
{
    waits();
    by_other(take);
}
static void written_to(void)
{
    opened();
    by_other(write_it);
}
static void peer_shut(void)
{
    opened();
    by_other(shut_it);
}
static void peer_ended(void)
{
    opened();
    by_other(end_it);
}
static void peer_ended_behind_bytes(void)
{
    written_to();
    by_other(end_it);
}
static void peer_reset(void)
{
    opened();
    by_other(reset_it);
}
static void peer_gave_up(void)
{
    opened();
    by_other(give_it_up);
}
static void peer_ended_unread(void)
{
    opened();
    send(c, data, 3, 0);
    by_other(end_it);
}
static void lost(void)
{
    waits();
    by_other(take_wrong);
}
static void lost_unread(void)
{
    waits();
    send(c, data, 3, 0);
    by_other(take_wrong);
}
static void listener_gone(void)
{
    waits();
    by_other(end_listener);
}
static void shut_writing(void)
{
    opened();
    shutdown(c, SHUT_WR);
}
static void shut_reading(void)
{
    opened();
    shutdown(c, SHUT_RD);
}
static void shut_both(void)
{
    opened();
    shutdown(c, SHUT_RDWR);
}
static void shut_and_peer_shut(void)
{
    shut_writing();
    by_other(shut_it);
}
static void peer_shut_and_shut(void)
{
    peer_shut();
    shutdown(c, SHUT_WR);
}
static void shut_and_peer_ended(void)
{
    shut_writing();
    by_other(end_it);
}
static void shut_and_reset(void)
{
    shut_writing();
    by_other(reset_it);
}
static void shut_and_ended_unread(void)
{
    opened();
    send(c, data, 3, 0);
    shutdown(c, SHUT_WR);
    by_other(end_it);
}
static void deaf_and_reset(void)
{
    shut_reading();
    by_other(reset_it);
}
static void shut_both_and_reset(void)
{
    shut_both();
    by_other(reset_it);
}
static void peer_shut_and_reset(void)
{
    peer_shut();
    by_other(reset_it);
}
static void wrote_to_the_ended(void)
{
    peer_ended();
    send(c, data, 3, MSG_NOSIGNAL);
}
static void wrote_twice_to_the_ended(void)
{
    wrote_to_the_ended();
    send(c, data, 3, MSG_NOSIGNAL);
}
static void held_for_the_ended(void)
{
    peer_ended();
    send(c, data, 3, MSG_MORE);
}
static void shut_both_and_written_to(void)
{
    shut_both();
    by_other(write_it);
}
static void shut_by_turns_and_written_to(void)
{
    shut_writing();
    shutdown(c, SHUT_RD);
    by_other(write_it);
}
static void wrote_to_one_shut(void)
{
    opened();
    by_other(shut_all_of_it);
    send(c, data, 3, MSG_NOSIGNAL);
}
static void gave_up(void)
{
    opened();
    connect(c, &nobody, sizeof nobody);
}
static void gave_up_reset(void)
{
    peer_reset();
    connect(c, &nobody, sizeof nobody);
}
static void gave_up_ended(void)
{
    peer_ended();
    connect(c, &nobody, sizeof nobody);
}

struct named {
    const char *name;
    void (*fn)(void);
};
#define NAMED(fn)                                                                                                      \
    {                                                                                                                  \
#fn, fn                                                                                                        \
    }

static const struct named states[] = {NAMED(fresh),
                                      NAMED(bound),
                                      NAMED(listens),
                                      NAMED(shut_before),
                                      NAMED(connects),
                                      NAMED(refused),
                                      NAMED(refused_at_once),
                                      NAMED(waits),
                                      NAMED(opened),
                                      NAMED(written_to),
                                      NAMED(peer_shut),
                                      NAMED(peer_ended),
                                      NAMED(peer_ended_behind_bytes),
                                      NAMED(peer_reset),
                                      NAMED(peer_gave_up),
                                      NAMED(peer_ended_unread),
                                      NAMED(lost),
                                      NAMED(lost_unread),
                                      NAMED(listener_gone),
                                      NAMED(shut_writing),
                                      NAMED(shut_reading),
                                      NAMED(shut_both),
                                      NAMED(shut_and_peer_shut),
                                      NAMED(peer_shut_and_shut),
                                      NAMED(shut_and_peer_ended),
                                      NAMED(shut_and_reset),
                                      NAMED(shut_and_ended_unread),
                                      NAMED(deaf_and_reset),
                                      NAMED(shut_both_and_reset),
                                      NAMED(peer_shut_and_reset),
                                      NAMED(wrote_to_the_ended),
                                      NAMED(wrote_twice_to_the_ended),
                                      NAMED(held_for_the_ended),
                                      NAMED(shut_both_and_written_to),
                                      NAMED(shut_by_turns_and_written_to),
                                      NAMED(wrote_to_one_shut),
                                      NAMED(gave_up),
                                      NAMED(gave_up_reset),
                                      NAMED(gave_up_ended)};
#define STATES (sizeof states / sizeof *states)

/* Calls. */

static void result(long rc)
{
    if (rc < 0)
        printf(" %s", name_of(errno));
    else
        printf(" %ld", rc);
}

static void reads(void)
{
    result(recv(c, data, 8, MSG_DONTWAIT));
}
static void peeks(void)
{
    result(recv(c, data, 8, MSG_DONTWAIT | MSG_PEEK));
}
static void reads_nothing(void)
{
    result(recv(c, data, 0, MSG_DONTWAIT));
}
static void writes(void)
{
    result(send(c, data, 3, MSG_DONTWAIT | MSG_NOSIGNAL));
}
static void writes_nothing(void)
{
    result(send(c, data, 0, MSG_DONTWAIT | MSG_NOSIGNAL));
}
static void shuts_reading(void)
{
    result(shutdown(c, SHUT_RD));
}
static void shuts_writing(void)
{
    result(shutdown(c, SHUT_WR));
}
static void shuts_both(void)
{
    result(shutdown(c, SHUT_RDWR));
}
static void lets_out(void)
{
    result(setsockopt(c, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int)));
}
static void asks_error(void)
{
    int error = 0;
    socklen_t len = sizeof error;
    result(getsockopt(c, SOL_SOCKET, SO_ERROR, &error, &len));
    printf(" %s", error ? name_of(error) : "none");
}
static void polls(void)
{
    struct pollfd p = {c, POLLIN | POLLOUT | POLLRDHUP, 0};
    poll(&p, 1, 0);
    unsigned e = (unsigned)p.revents;
    printf("%s%s%s%s%s", e & POLLIN ? " IN" : "", e & POLLOUT ? " OUT" : "", e & POLLERR ? " ERR" : "",
           e & POLLHUP ? " HUP" : "", e & POLLRDHUP ? " RDHUP" : "");
}
static void asks_peer(void)
{
    struct sockaddr_in name;
    socklen_t len = sizeof name;
    result(getpeername(c, (struct sockaddr *)&name, &len));
}
static void asks_bytes(void)
{
    int n = -1;
    result(ioctl(c, FIONREAD, &n));
    printf(" %d", n);
}
static void asks_state(void)
{
    struct tcp_info info = {0};
    socklen_t len = sizeof info;
    result(getsockopt(c, IPPROTO_TCP, TCP_INFO, &info, &len));
    printf(" %d", info.tcpi_state);
}
static void accepts(void)
{
    int fd = accept(c, NULL, NULL);
    result(fd < 0 ? -1 : 0);
    if (fd >= 0)
        close(fd);
}
static void starts_to_listen(void)
{
    result(listen(c, 4));
}
static void binds(void)
{
    result(bind(c, (struct sockaddr *)&here, sizeof here));
}
static void connects_again(void)
{
    result(connect(c, (struct sockaddr *)&at, sizeof at));
}
static void gives_up(void)
{
    result(connect(c, &nobody, sizeof nobody));
}

static const struct named calls[] = {
    NAMED(reads),         NAMED(peeks),          NAMED(reads_nothing), NAMED(writes),     NAMED(writes_nothing),
    NAMED(shuts_reading), NAMED(shuts_writing),  NAMED(shuts_both),    NAMED(asks_error), NAMED(polls),
    NAMED(asks_peer),     NAMED(asks_bytes),     NAMED(asks_state),    NAMED(accepts),    NAMED(starts_to_listen),
    NAMED(binds),         NAMED(connects_again), NAMED(gives_up),      NAMED(lets_out)};
#define CALLS (sizeof calls / sizeof *calls)

static void leave(int fd)
{
    if (fd < 0)
        return;
    set_reset(fd); /* no TIME_WAIT */
    close(fd);
}

/* A reset finds something unread: not so on Linux (docs/posix.md). */
static bool is_known(const struct named *state, const struct named *first, const struct named *second)
{
    return state->fn == peer_ended_behind_bytes && (first->fn == writes || second->fn == writes);
}

static void try_two(const struct named *state, const struct named *first, const struct named *second)
{
    if (is_known(state, first, second))
        return;
    c = s = -1;
    l = listener(&at);
    state->fn();
    printf("%s: %s", state->name, first->name);
    first->fn();
    printf(", %s", second->name);
    second->fn();
    printf(", polls");
    polls();
    printf(", reads");
    reads();
    printf("\n");
    leave(c);
    leave(s);
    leave(l);
}

int main(int argc, char **argv)
{
    pthread_t thread;
    here.sin_family = AF_INET;
    if (argc != 4 || inet_pton(AF_INET, argv[1], &here.sin_addr) != 1)
        return 2;
    unsigned part = (unsigned)atoi(argv[2]), parts = (unsigned)atoi(argv[3]);
    setvbuf(stdout, NULL, _IOFBF, 1 << 16);
    sem_init(&begins, 0, 0);
    sem_init(&done, 0, 0);
    wait_a_moment();
    if (pthread_create(&thread, NULL, do_deeds, NULL))
        return 1;
    for (unsigned i = 0; i < STATES; i++)
        for (unsigned n = part; n < CALLS * CALLS; n += parts)
            try_two(&states[i], &calls[n / CALLS], &calls[n % CALLS]);
    printf("end\n");
    return 0;
}
