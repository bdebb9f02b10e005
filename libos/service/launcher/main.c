/* corelane-run: a service that was compiled ahead of time, in a process without Python. `corelane run ./service.so`
 * becomes this program. It serves until SIGINT, SIGTERM, or the end of --seconds. Ends with 0; 1: it could not be done,
 * or a handler did not come back; 2: the command line was wrong. */
#include "options.h"
#include "report.h"

#include "../../nics.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <time.h>
#include <unistd.h>

static struct options options;

static void on_event(void *arg, int event, const char *text)
{
    static const char *const names[] = {
        [CL_EVENT_ATTACHED] = "attached", [CL_EVENT_STALLED] = "stalled", [CL_EVENT_GONE] = "gone",
        [CL_EVENT_CONFLICT] = "conflict", [CL_EVENT_LIMITED] = "limited", [CL_EVENT_UNFINISHED] = "unfinished"};
    bool known = event > 0 && (size_t)event < sizeof names / sizeof names[0] && names[event];
    (void)arg;
    report_event(&options, known ? names[event] : "event", text);
}

/* Those that end us; whoever started us may have had one ignored. */
static void block_signals(sigset_t *ends)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    sigemptyset(ends);
    for (unsigned i = 0; i < 2; i++) {
        struct sigaction now;
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(ends, numbers[i]);
    }
    pthread_sigmask(SIG_BLOCK, ends, NULL); /* before the kthreads start, so that they inherit it */
    signal(SIGPIPE, SIG_IGN);
}

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec / 1e9;
}

/* Sleep until one of the signals, then true; false: time is over. left_s < 0: for ever. */
static bool wait_for_signal(const sigset_t *ends, double left_s)
{
    double end = now_s() + left_s;
    int rc;
    do {
        double left = left_s < 0 ? 3600 : cl_max(end - now_s(), 0.0);
        struct timespec ts = {.tv_sec = (time_t)left, .tv_nsec = (long)((left - (double)(time_t)left) * 1e9)};
        rc = sigtimedwait(ends, NULL, &ts);
        if (rc > 0)
            return true;
    } while (left_s < 0 || (errno == EINTR && now_s() < end));
    return false;
}

static void fill(struct cl_runtime_config *c, const char *name, struct cl_nic *nic)
{
    *c = (struct cl_runtime_config){.nic = nic,
                                    .socket_path = nic ? NULL : options.socket,
                                    .name = name,
                                    .kthreads = options.kthreads,
                                    .poll = options.poll,
                                    .poll_set = 1,
                                    .spin_ns = options.spin_us > 0 ? (uint64_t)(options.spin_us * 1e3) : 0,
                                    .stop_ms = (uint32_t)cl_min(cl_max(options.stop_s * 1e3, 1.0), 4e9),
                                    .cpus = options.n_cpus ? options.cpus : NULL,
                                    .ipv4 = options.address,
                                    .ipv4_prefix = options.prefix,
                                    .gateway = options.gateway,
                                    .kind = options.kind,
                                    .guaranteed = options.guaranteed,
                                    .max_cores = options.max_cores,
                                    .weight = options.weight,
                                    .deadline_us = options.deadline_us,
                                    .quantum_us = options.quantum_us,
                                    .quantum_signal = options.quantum_signal,
                                    .on_event = on_event};
}

/* The runtime; waits for an iokernel that is still starting. -EINTR: a signal came meanwhile. */
static int make(const char *name, struct cl_nic *nic, const sigset_t *ends, struct cl_runtime **out, char err[256])
{
    struct cl_runtime_config c;
    double deadline = now_s() + (nic ? 0 : options.wait_s);
    fill(&c, name, nic);
    for (;;) {
        int rc = cl_runtime_new(&c, out, err);
        if ((rc != -ENOENT && rc != -ECONNREFUSED) || now_s() >= deadline)
            return rc;
        if (wait_for_signal(ends, 0.05))
            return -EINTR;
    }
}

static int open_nic(struct cl_nic **nic, char err[256])
{
    struct cl_nic_choice choice = {.name = options.nic,
                                   .queues = options.kthreads,
                                   .address = options.address,
                                   .host = options.host,
                                   .host_prefix = options.host_prefix,
                                   .xskmap_fd = options.xskmap_fd};
    int rc = options.nic ? cl_nic_choose(&choice, nic, err) : 0;
    if (rc == 0 && options.xskmap_fd >= 0) {
        close(options.xskmap_fd);
        (void)!fcntl(options.link_fd, F_SETFD, FD_CLOEXEC);
    }
    return rc;
}

/* Between start and stop. */
static int serve(const char *name, const struct cl_service *service, struct cl_runtime *rt, const sigset_t *ends)
{
    char err[256] = "";
    int rc = cl_service_bind(rt, service, (uint16_t)options.port, err);
    if (rc == 0)
        rc = cl_runtime_start(rt, err);
    if (rc)
        return report_error(&options, options.service, err);
    report_serving(&options, name, service, rt);
    (void)wait_for_signal(ends, options.seconds);
    report_state("STOPPING=1");
    if (cl_runtime_stop(rt, 1000000000) == -ETIMEDOUT) {
        struct cl_runtime_stuck stuck;
        char text[256], line[320];
        (void)cl_runtime_stuck(rt, &stuck, text);
        snprintf(line, sizeof line, "stop the runtime: %s does not come back", text);
        report_event(&options, "stuck", line);
        _exit(1); /* what it uses cannot be freed */
    }
    report_stopped(&options, name, rt);
    return 0;
}

static int run(const struct cl_service *service, const sigset_t *ends)
{
    const char *name = options.name ? options.name : service->name;
    char err[256] = "";
    struct cl_nic *nic = NULL;
    struct cl_runtime *rt = NULL;
    int status = 1, rc = open_nic(&nic, err);
    if (rc == 0)
        rc = make(name, nic, ends, &rt, err);
    if (rc == 0)
        status = serve(name, service, rt, ends);
    else if (rc == -EINTR)
        status = 0;
    else
        (void)report_error(&options, options.nic ? options.nic : options.socket, err);
    cl_runtime_delete(rt);
    if (nic)
        cl_nic_close(nic);
    return status;
}

int main(int argc, char **argv)
{
    const struct cl_service *service;
    pid_t parent = getppid();
    char err[256] = "";
    sigset_t ends;
    int status;
    if (!options_parse(argc, argv, &options, &status))
        return status;
    if (options.with_parent && (prctl(PR_SET_PDEATHSIG, SIGTERM) || getppid() != parent))
        return report_error(&options, "run with the parent", "it has ended already");
    if (cl_service_open(options.service, &service, err))
        return report_error(&options, options.service, err);
    if (options.check) {
        report_event(&options, "check", "it can run here");
        return 0;
    }
    block_signals(&ends);
    return run(service, &ends);
}
