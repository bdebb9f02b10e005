/* corelane-run: a service that was compiled ahead of time, in a process without Python. `corelane run ./service.so`
 * becomes this program. It serves until SIGINT, SIGTERM, the end of --seconds, or until another member of its group
 * has taken over; one that is jobs alone ends with the last of them. Ends with 0; 1: it could not be done, a job has
 * failed, or a handler did not come back; 2: the command line was wrong. */
#include "options.h"
#include "replacing.h"
#include "report.h"

#include "../../nics.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

#define DRAIN_S 5.0 /* for answers that are under way */

static struct options options;
static int replaced_fd; /* readable: another member of the group has taken over */

static void on_event(void *arg, int event, const char *text)
{
    static const char *const names[] = {
        [CL_EVENT_ATTACHED] = "attached", [CL_EVENT_STALLED] = "stalled", [CL_EVENT_GONE] = "gone",
        [CL_EVENT_CONFLICT] = "conflict", [CL_EVENT_LIMITED] = "limited", [CL_EVENT_UNFINISHED] = "unfinished",
        [CL_EVENT_DRAIN] = "drain",       [CL_EVENT_RAISED] = "raised"};
    bool known = event > 0 && (size_t)event < sizeof names / sizeof names[0] && names[event];
    (void)arg;
    report_event(&options, known ? names[event] : "event", text);
    if (event == CL_EVENT_DRAIN)
        (void)eventfd_write(replaced_fd, 1);
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

/* Jobs that have ended since. False: one of them has failed. */
static bool tell_jobs(struct cl_service_bound *bound)
{
    const char *name;
    int64_t result;
    bool good = true;
    while (cl_service_next_job(bound, &name, &result)) {
        report_job(&options, name, result);
        good = good && result >= 0;
    }
    return good;
}

/* Sleep until a signal, the end of --seconds or of all jobs, or a take-over. Returns what the process ends with. */
static int wait_for_end(struct cl_service_bound *bound, const sigset_t *ends)
{
    double end = now_s() + options.seconds;
    bool replacing = true;
    int status = 0, signals = signalfd(-1, ends, SFD_CLOEXEC);
    struct pollfd fds[] = {{signals, POLLIN, 0}, {replaced_fd, POLLIN, 0}, {cl_service_jobs_fd(bound), POLLIN, 0}};
    for (bool over = false; !over;) {
        double left = options.seconds < 0 ? 3600 : cl_max(end - now_s(), 0.0);
        replacing = replacing && replacing_look(&options);
        left = replacing ? cl_min(left, REPLACING_LOOK_MS / 1e3) : left;
        int n = poll(fds, 3, (int)cl_min(left * 1e3 + 1, 1e6));
        if (n > 0 && fds[2].revents && !tell_jobs(bound))
            status = 1;
        over = (n > 0 && (fds[0].revents || fds[1].revents)) || cl_service_is_done(bound) ||
               (options.seconds >= 0 && now_s() >= end);
    }
    close(signals);
    return status;
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
        if (sigtimedwait(ends, NULL, &(struct timespec){.tv_nsec = 50000000}) > 0)
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

/* New flows may come; with --replace the other members get none from now on. */
static int begin(const char *name, const struct cl_service *service, struct cl_runtime *rt)
{
    struct cl_runtime_info info;
    char err[256] = "", line[320];
    cl_runtime_info(rt, &info);
    if (options.replace && !info.member) {
        snprintf(line, sizeof line, "%s is of no group: see members in [apps.%s] there", name, name);
        return report_error(&options, "--replace", line);
    }
    int others = cl_runtime_ready(rt, options.replace, err);
    if (others < 0)
        return report_error(&options, options.service, err);
    report_serving(&options, name, service, rt);
    if (options.replace)
        replacing_begin(&options, name, others);
    return 0;
}

/* What has come is answered: new flows go to the other members, and connections end. */
static void drain(struct cl_runtime *rt, struct cl_service_bound *bound)
{
    struct cl_runtime_info info;
    char err[256] = "";
    double end = now_s() + DRAIN_S;
    cl_runtime_info(rt, &info);
    if (cl_runtime_drain(rt, 1000000000, err))
        report_event(&options, "undrained", err);
    cl_service_drain(bound);
    while (cl_service_alive(bound) && now_s() < end)
        (void)poll(NULL, 0, 20);
    if (info.member && cl_runtime_wait_closed(rt, (int64_t)(DRAIN_S * 1e9), err))
        report_event(&options, "undrained", err);
}

/* Between start and stop. */
static int serve(const char *name, const struct cl_service *service, struct cl_runtime *rt,
                 struct cl_service_bound *bound, const sigset_t *ends)
{
    char err[256] = "";
    if (cl_runtime_start(rt, err))
        return report_error(&options, options.service, err);
    cl_runtime_publish(rt, cl_service_counters, bound);
    int status = begin(name, service, rt);
    if (status == 0)
        status = wait_for_end(bound, ends);
    report_state("STOPPING=1");
    drain(rt, bound);
    if (cl_runtime_stop(rt, 1000000000) == -ETIMEDOUT) {
        struct cl_runtime_stuck stuck;
        char text[256], line[320];
        (void)cl_runtime_stuck(rt, &stuck, text);
        snprintf(line, sizeof line, "stop the runtime: %s does not come back", text);
        report_event(&options, "stuck", line);
        _exit(1); /* what it uses cannot be freed */
    }
    eventfd_t others;
    report_stopped(&options, name, rt, bound, eventfd_read(replaced_fd, &others) == 0);
    return status;
}

static int run(const struct cl_service *service, const sigset_t *ends)
{
    const char *name = options.name ? options.name : service->name;
    char err[256] = "";
    struct cl_nic *nic = NULL;
    struct cl_runtime *rt = NULL;
    struct cl_service_bound *bound = NULL;
    int status = 1, rc = open_nic(&nic, err);
    if (rc == 0)
        rc = make(name, nic, ends, &rt, err);
    if (rc == -EINTR)
        status = 0;
    else if (rc)
        (void)report_error(&options, options.nic ? options.nic : options.socket, err);
    else if (cl_service_bind(rt, service, (uint16_t)options.port, &bound, err))
        (void)report_error(&options, options.service, err);
    else
        status = serve(name, service, rt, bound, ends);
    cl_runtime_delete(rt);
    cl_service_unbind(bound);
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
    replaced_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    return run(service, &ends);
}
