/* Our TCP and Linux', with a bad wire in user space between them: both sides open, write, read late, half-close, close
 * and reset at any time; the wire loses, doubles, delays, overtakes, cuts, flips bits, marks congestion, makes data
 * urgent, shrinks windows, says old bytes again with other content, and makes segments up, both ways.
 *
 * A byte that a user gets is the one that was written there, always. In a round in which nobody resets, and the wire
 * makes nothing up, all bytes come, and both ends hear of the end. After each round ours goes on alone, by hours of a
 * clock of its own: no memory and no connection is left.
 *
 * Rounds are independent, and many run at once, each a host of ours with an address of its own. What is drawn follows
 * from a round's seed; when Linux does something is Linux' to say. argv: seed of the first, rounds, how many at once,
 * most bytes of a direction. ONLY=seed shows the segments of one of them. Prints what happened, and "ok". */
#include "tests/libos/net/tcp/c/fuzz_kernel_users.h"

#include <poll.h>

/* A round. */

static void draw_wire(struct round *r)
{
    bool bad = below(r, 2);
    struct wire *w = &r->wire;
    w->loss = bad ? (unsigned)below(r, r->clean ? 40 : 250) : 0;
    w->twice = bad ? (unsigned)below(r, 100) : 0;
    w->late = bad ? (unsigned)below(r, 200) : 0;
    w->flip = bad ? (unsigned)below(r, r->clean ? 20 : 100) : 0;
    w->cut = (unsigned)(below(r, 2) * below(r, 200));
    w->mark = (unsigned)(below(r, 2) * below(r, 100));
    w->urgent = (unsigned)(below(r, 2) * below(r, 100));
    w->shrink = (unsigned)(below(r, 2) * below(r, 100));
    w->lie = (unsigned)(below(r, 2) * below(r, 300));
    w->delay_ns = below(r, 3) ? below(r, 2 * MS) : below(r, 20000);
    w->jitter_ns = w->delay_ns / 4 + 1;
    w->late_ns = 2 * w->delay_ns + 100000;
    w->spares_syns = r->clean || below(r, 4);
}

static void draw_host(struct round *r)
{
    static const unsigned mtus[] = {576, 1000, 1500, 9000};
    CHECK_EQ(cl_tcp_host_new(r->ip, mtus[below(r, 4)], our_time(r), &r->host), 0);
    uint32_t limit = (uint32_t)(3000 + below(r, 200000)), scale = (uint32_t)below(r, 15);
    while (1u << scale > limit / 4) /* else there is hardly a window that a field can tell */
        scale--;
    /* If SYNs cross, Linux scales its windows also for a peer that does not. */
    const uint64_t scales = r->how == BOTH_OPEN ? CL_TCPO_WSCALE : 0;
    const struct {
        int option;
        uint64_t value;
    } all[] = {{CL_TCP_SET_SEND_LIMIT, 1000 + below(r, 200000)},
               {CL_TCP_SET_RECEIVE_LIMIT, limit},
               {CL_TCP_SET_WSCALE, scale},
               {CL_TCP_SET_OPTIONS, (below(r, 16) & ~(uint64_t)CL_TCPO_MSS) | scales},
               {CL_TCP_SET_NO_DELAY, below(r, 2)},
               {CL_TCP_SET_ECN, below(r, 3)},
               {CL_TCP_SET_RULE, below(r, 3)},
               {CL_TCP_SET_RTO_LEAST, 2 + below(r, 20)},
               {CL_TCP_SET_DELAYED_ACK, 1 + below(r, 40)}};
    for (unsigned i = 0; i < sizeof all / sizeof *all; i++)
        CHECK_EQ(cl_tcp_host_set(r->host, all[i].option, (uint32_t)all[i].value), 0);
}

static void set_linux(int fd, int level, int option, uint64_t value)
{
    int v = (int)value;
    CHECK(setsockopt(fd, level, option, &v, sizeof v) == 0, "option %d, %d: %s", option, v, strerror(errno));
}

static int draw_linux(struct round *r)
{
    int fd = kernel_socket(r->port);
    set_linux(fd, SOL_SOCKET, SO_OOBINLINE, 1); /* else urgent bytes are missing in the stream */
    set_linux(fd, IPPROTO_TCP, TCP_NODELAY, below(r, 2));
    if (below(r, 2))
        set_linux(fd, SOL_SOCKET, SO_RCVBUF, 4000 + below(r, 100000));
    if (below(r, 2))
        set_linux(fd, SOL_SOCKET, SO_SNDBUF, 4000 + below(r, 100000));
    if (!below(r, 4))
        set_linux(fd, IPPROTO_TCP, TCP_MAXSEG, 100 + below(r, 1300));
    if (!below(r, 4))
        set_linux(fd, IPPROTO_TCP, TCP_WINDOW_CLAMP, 3000 + below(r, 60000));
    if (below(r, 2))
        (void)setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, "reno", 4);
    return fd;
}

static void we_connect(struct round *r)
{
    r->sock = cl_tcp_host_connect(r->host, PORT_OURS, IP_LINUX, r->port);
    CHECK(r->sock >= 0, "connecting says %d", r->sock);
}

static void open_both(struct round *r)
{
    int fd = draw_linux(r);
    struct sockaddr_in to = kernel_address(r->ip, PORT_OURS);
    if (r->how == WE_OPEN) {
        CHECK(listen(fd, 4) == 0);
        r->linux_listener = fd;
        we_connect(r);
        return;
    }
    if (r->how == LINUX_OPENS)
        r->listener = cl_tcp_host_listen(r->host, PORT_OURS, 4);
    r->fd = fd;
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno == EINPROGRESS, "%s", strerror(errno));
    if (r->how == BOTH_OPEN)
        we_connect(r);
}

static void draw_app(struct round *r, struct app *a)
{
    *a = (struct app){0};
    a->slow = below(r, 2) ? 2 : 1 + below(r, 30);
    a->wants = below(r, below(r, 2) ? most_bytes : 2000);
}

static void begin_round(struct round *r, uint64_t seed)
{
    *r = (struct round){.seed = seed, .lives = true, .listener = -1, .sock = -1, .linux_listener = -1, .fd = -1};
    r->dice = seed * 0x9e3779b97f4a7c15ull + 1;
    for (unsigned i = 0; i < 10; i++)
        next_random(&r->dice);
    r->clean = below(r, 2);
    r->how = below(r, 3);
    r->skew_ns = below(r, 1ull << 44); /* our first number follows from it */
    r->ip = IP_LINUX + 1 + (uint32_t)(seed % HOSTS);
    r->port = (uint16_t)(2000 + seed % 30000);
    r->began_ns = now_ns;
    r->until_ns = now_ns + (r->clean ? LIMIT_NS : below(r, SECOND));
    draw_wire(r);
    draw_host(r);
    draw_app(r, &r->ours);
    draw_app(r, &r->theirs);
    open_both(r);
    send_ours(r);
}

/* Users let go of what they have, whatever it is. */
static void close_all(struct round *r)
{
    if (r->sock >= 0)
        we_close(r, below(r, 2));
    if (r->fd >= 0)
        linux_close(r, true);
    if (r->listener >= 0)
        CHECK_EQ(cl_tcp_host_close(r->host, r->listener, false), 0);
    if (r->linux_listener >= 0)
        close(r->linux_listener);
    while (r->n_flying)
        free(r->flying[--r->n_flying]);
}

/* Then time passes for ours alone, whose packets nobody answers, and nothing is left. */
static void expect_nothing(struct round *r)
{
    uint8_t none[1];
    uint64_t at_ns = our_time(r), until_ns = at_ns + 7200 * SECOND;
    while (at_ns < until_ns && cl_tcp_host_due_ns(r->host) != UINT64_MAX) {
        at_ns = cl_max(at_ns, cl_tcp_host_due_ns(r->host));
        cl_tcp_host_run(r->host, at_ns);
        while (cl_tcp_host_next(r->host, none, sizeof none, &(uint64_t){0}))
            ;
    }
    CHECK(at_ns < until_ns, "a connection of ours outlives its timers");
    CHECK_EQ(cl_tcp_host_held(r->host), 0);
    for (unsigned i = 0; i < CL_TCP_HOST_SOCKETS; i++) /* all sockets are free */
        CHECK(cl_tcp_host_listen(r->host, (uint16_t)(5000 + i), 1) >= 0, "socket %u of them", i);
    cl_tcp_host_delete(r->host);
}

static void expect_all(const struct round *r)
{
    CHECK(r->ours.over && r->theirs.over, "we: wrote %llu of %llu, read %llu; Linux: wrote %llu of %llu, read %llu",
          (unsigned long long)r->ours.wrote, (unsigned long long)r->ours.wants, (unsigned long long)r->ours.read,
          (unsigned long long)r->theirs.wrote, (unsigned long long)r->theirs.wants, (unsigned long long)r->theirs.read);
    CHECK_EQ(r->ours.read, r->theirs.wants);
    CHECK_EQ(r->theirs.read, r->ours.wants);
    n_clean++;
    longest_ns = cl_max(longest_ns, now_ns - r->began_ns);
}

/* What is due in a round now. Returns whether anything was. */
static bool step(struct round *r)
{
    bool any = deliver(r), due = cl_tcp_host_due_ns(r->host) <= our_time(r);
    if (due || any) {
        cl_tcp_host_run(r->host, our_time(r));
        send_ours(r);
    }
    if (now_ns < r->next_act_ns)
        return any || due;
    r->next_act_ns = now_ns + below(r, 2 * r->wire.delay_ns + MS / 2);
    cl_tcp_host_run(r->host, our_time(r));
    we_act(r);
    send_ours(r);
    linux_acts(r);
    say_again(r, below(r, 2));
    if (!r->clean && chance(r) < 30)
        make_up(r, below(r, 2));
    if ((r->ours.over && r->theirs.over) || now_ns > r->until_ns) {
        if (r->clean)
            expect_all(r);
        close_all(r);
        expect_nothing(r);
        r->lives = false;
    }
    return true;
}

static void run(uint64_t seed, uint64_t count, unsigned at_once)
{
    for (uint64_t begun = 0, live = 0; begun < count || live;) {
        bool any = false;
        live = 0;
        now_ns = kernel_now_ns();
        for (unsigned i = 0; i < at_once; i++) {
            if (!rounds[i].lives && begun < count) {
                round_seed = seed + begun;
                begin_round(&rounds[i], seed + begun++);
            }
            if (!rounds[i].lives)
                continue;
            live++;
            round_seed = rounds[i].seed;
            any |= step(&rounds[i]);
        }
        any |= hear_linux(at_once);
        if (!any)
            (void)poll(&(struct pollfd){kernel_tun, POLLIN, 0}, 1, 1);
    }
}

int main(int argc, char **argv)
{
    CHECK(argc == 5);
    uint64_t seed = strtoull(argv[1], NULL, 0), count = strtoull(argv[2], NULL, 0);
    unsigned at_once = (unsigned)strtoul(argv[3], NULL, 0);
    most_bytes = strtoull(argv[4], NULL, 0);
    CHECK(seed && at_once <= MOST_AT_ONCE);
    only_seed = getenv("ONLY") ? strtoull(getenv("ONLY"), NULL, 0) : 0;
    kernel_begin(IP_LINUX, MASK);
    (void)kernel_set("tcp_rto_min_us", "5000");
    (void)kernel_set("tcp_ecn", "1");
    run(seed, count, at_once);
    printf("%llu of %llu rounds clean, the longest took %.1f s\n", (unsigned long long)n_clean,
           (unsigned long long)count, (double)longest_ns / 1e9);
    printf("%llu bytes; %llu packets lost, %llu forged, %llu resets\n", (unsigned long long)n_bytes,
           (unsigned long long)n_lost, (unsigned long long)n_forged, (unsigned long long)n_resets);
    printf("ok\n");
    return 0;
}
