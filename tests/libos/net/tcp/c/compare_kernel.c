/* The same segments and calls, one after the other, for a socket of Linux and one of ours: both say the same, or differ
 * in a way that is named in compare_rules.h.
 *
 * A case is drawn from a seed: who opens, options, then some forty steps. Segments in order, with gaps, overlapping
 * with other content, old, beyond the window, with any flags, urgent; acknowledgements and SACK ranges of anything,
 * windows of any size, resets, SYNs, FINs, old timestamps or none, broken sums; and the user's writes, reads, shutdown
 * and close. After each is compared:
 *   kind of answer      nothing, an acknowledgement, a reset
 *   numbers             what is acknowledged, what a reset says, how far was sent
 *   window              its edge never moves left; what begins behind it is refused. How large it is each says for
 *                       itself: Linux begins small and grows
 *   state, user         TCP_INFO's; what can be read, the end, the error
 * Numbers are relative to each one's own first. Nobody's timers come into it: our clock stands, and a case in which
 * Linux was held up is drawn again.
 *
 * argv: seed of the first case, cases. SHOW=1 prints each step. Prints how often each difference was seen, and "ok". */
#include "compare_steps.h"

static void set_linux(int s) /* a listener's are what its connections begin with */
{
    const int on = 1;
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on) == 0);
    CHECK(setsockopt(s, SOL_SOCKET, SO_OOBINLINE, &on, sizeof on) == 0);          /* else urgent bytes are missing */
    CHECK(setsockopt(s, SOL_SOCKET, SO_RCVBUF, &(int){30000}, sizeof(int)) == 0); /* else Linux tunes the clamp */
    CHECK(setsockopt(s, IPPROTO_TCP, TCP_WINDOW_CLAMP, &window_most, sizeof window_most) == 0);
}

static void reset_end(struct end *e)
{
    const char *name = e->name;
    memset(e, 0, sizeof *e);
    e->name = name;
}

static void draw(void)
{
    reset_end(&linux_end);
    reset_end(&our_end);
    memset(versions, 0, sizeof versions);
    versions[0] = 1;
    fd = sock = -1;
    step_number = 0;
    next = last_byte = 0;
    fin_at = INT32_MAX;
    wide = true;
    lazy = chance() < 300;
    held = 1;
    unanswered = 0;
    parted = over = false;
    ts_now = 1000000 + (uint32_t)below(1u << 31);
    active = below(2);
    peer_ip = IP_SELF + 1 + (uint32_t)(case_seed % (1u << 21));
    peer_port = (uint16_t)(2000 + case_seed % 30000);
    offer = (struct cl_tcp_options){.has = (uint8_t)below(16), .wscale = (uint8_t)below(8), .ts_val = ts_now};
    offer.has &= (uint8_t)~CL_TCPO_WSCALE; /* a window is what its field says */
    offer.mss = (uint16_t)(536 + below(924));
    CHECK_EQ(cl_tcp_host_new(IP_SELF, 1500, 1000000000, &host), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_RECEIVE_LIMIT, (uint32_t)window_most), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_ECN, 0), 0);
    CHECK_EQ(cl_tcp_host_set(host, CL_TCP_SET_NO_DELAY, 1), 0);
}

/* Something that does not belong into a handshake, now and then. */
static void maybe_say_strange(void)
{
    struct saying y = plain_ack();
    uint64_t limited = limited_so_far();
    if (chance() >= 300)
        return;
    begin_step();
    unsigned n = chance();
    if (n < 500)
        say_flags(&y);
    else if (n < 800)
        say_ack(&y);
    else
        say_data(&y);
    say(&y);
    users_accept();
    users_read();
    compare(false, limited_so_far() != limited);
    over = (linux_end.error && our_end.error) || (next == 0 && our_end.offers); /* refused; another stream than ours */
}

static void open_passively(void)
{
    struct saying y = {.s = {.flags = CL_TCPF_SYN, .window = OPEN, .options = offer}};
    snprintf(what, sizeof what, "a SYN with options %x", offer.has);
    CHECK_EQ(cl_tcp_host_listen(host, PORT, 4), 0);
    say(&y);
}

static void open_actively(void)
{
    struct sockaddr_in to = kernel_address(peer_ip, peer_port);
    bool crossing = chance() < 300;
    struct saying y = {.s = {.flags = CL_TCPF_SYN | CL_TCPF_ACK, .window = OPEN, .options = offer}, .ack_from = UNSENT};
    fd = kernel_socket(PORT_ACTIVE);
    set_linux(fd);
    CHECK(connect(fd, (struct sockaddr *)&to, sizeof to) < 0 && errno == EINPROGRESS, "%s", strerror(errno));
    sock = cl_tcp_host_connect(host, PORT_ACTIVE, peer_ip, peer_port);
    hear_both();
    maybe_say_strange();
    if (parted || over)
        return;
    begin_step();
    if (crossing) {
        y.s.flags = CL_TCPF_SYN;
        snprintf(what, sizeof what, "a SYN that crosses theirs");
    } else {
        snprintf(what, sizeof what, "an answer to the SYN, with options %x", offer.has);
    }
    say(&y);
}

static void run_case(void)
{
    draw();
    began_ns = kernel_now_ns();
    begin_step();
    if (active)
        open_actively();
    else
        open_passively();
    linux_end.times = our_end.times = offer.has & CL_TCPO_TIMES;
    if (!parted && !over)
        compare(false, false);
    next = 1;
    if (!parted && !over)
        maybe_say_strange();
    if (parted || over)
        return;
    struct saying y = plain_ack();
    begin_step();
    snprintf(what, sizeof what, "the acknowledgement of the SYN");
    say(&y);
    users_accept();
    compare(false, false);
    over = linux_end.said.resets && our_end.said.resets;
    next = (uint32_t)cl_max((int32_t)next, (int32_t)our_end.acked); /* what was strange may have been data */
    for (unsigned i = 0; i < STEPS && !parted && !over; i++)
        step();
}

/* Nothing of it is left in Linux that would say something in another case. */
static void end_case(void)
{
    struct saying y = {.s = {.flags = CL_TCPF_RST}};
    if (!linux_end.gone)
        users_close(true);
    say(&y);
    for (int left; (left = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK)) >= 0;)
        kernel_reset(left);
    cl_tcp_host_delete(host);
}

static void try_case(void)
{
    n_differ = 0;
    for (volatile unsigned i = 0; i < TRIES; i++) {
        dice = case_seed * 0x9e3779b97f4a7c15ull + 1;
        times_dice = ~dice;
        for (unsigned j = 0; j < 10; j++)
            next_random(&dice);
        if (setjmp(tried) == 0) {
            run_case();
            end_case();
            return;
        }
        end_case();
    }
    n_held_up++;
}

int main(int argc, char **argv)
{
    CHECK(argc == 3);
    uint64_t seed = strtoull(argv[1], NULL, 0), cases = strtoull(argv[2], NULL, 0);
    verbose = getenv("SHOW") != NULL;
    kernel_begin(IP_SELF, MASK);
    (void)kernel_set("tcp_ecn", "0");
    (void)kernel_set("tcp_syncookies", "0");
    (void)kernel_set("tcp_invalid_ratelimit", "0");
    (void)kernel_set("tcp_challenge_ack_limit", "2147483647");
    (void)kernel_set("tcp_early_retrans", "0");
    (void)kernel_set("tcp_autocorking", "0");
    listener = kernel_socket(PORT);
    set_linux(listener);
    CHECK(listen(listener, 4096) == 0);
    for (case_seed = seed; case_seed < seed + cases; case_seed++)
        try_case();
    CHECK(n_held_up <= cases / 2, "this machine is too slow: %llu of %llu cases were held up",
          (unsigned long long)n_held_up, (unsigned long long)cases);
    for (unsigned i = 0; i < DIFFERENCES; i++)
        printf("%6llu  %s\n", (unsigned long long)seen[i], reasons[i]);
    printf("ok\n");
    return 0;
}
