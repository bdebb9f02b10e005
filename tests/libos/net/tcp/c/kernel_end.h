/* The other end of fuzz_kernel.c and compare_kernel.c: Linux' TCP, in a network namespace of this process alone, behind
 * a TUN device whose packets the process reads and writes. Needs root. Nothing is left of it when the process ends. */
#ifndef TESTS_LIBOS_TCP_KERNEL_END_H
#define TESTS_LIBOS_TCP_KERNEL_END_H

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sched.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

static int kernel_tun = -1;

static inline uint64_t kernel_now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ull + (uint64_t)t.tv_nsec;
}

static struct sockaddr_in kernel_address(uint32_t ipv4, uint16_t port)
{
    return (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {.s_addr = htonl(ipv4)}};
}

/* A setting of net.ipv4 of the namespace. False: this kernel has none of that name. */
static bool kernel_set(const char *name, const char *value)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/sys/net/ipv4/%s", name);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0)
        return false;
    CHECK(write(fd, value, strlen(value)) == (ssize_t)strlen(value), "%s: %s", path, strerror(errno));
    close(fd);
    return true;
}

static void kernel_interface(int fd, unsigned long what, struct ifreq *r)
{
    CHECK(ioctl(fd, what, r) == 0, "ioctl %#lx: %s", what, strerror(errno));
}

/* Once. Address and mask of the kernel's end, in host byte order; what is behind the mask reaches the process. */
static void kernel_begin(uint32_t ipv4, uint32_t mask)
{
    struct ifreq r = {.ifr_name = "fuzz"};
    struct sockaddr_in at;
    CHECK(unshare(CLONE_NEWNET) == 0, "unshare: %s", strerror(errno));
    kernel_tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
    CHECK(kernel_tun >= 0, "/dev/net/tun: %s", strerror(errno));
    r.ifr_flags = IFF_TUN | IFF_NO_PI;
    kernel_interface(kernel_tun, TUNSETIFF, &r);
    int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0);
    at = kernel_address(ipv4, 0);
    memcpy(&r.ifr_addr, &at, sizeof at);
    kernel_interface(fd, SIOCSIFADDR, &r);
    at = kernel_address(mask, 0);
    memcpy(&r.ifr_netmask, &at, sizeof at);
    kernel_interface(fd, SIOCSIFNETMASK, &r);
    r.ifr_qlen = 10000;
    kernel_interface(fd, SIOCSIFTXQLEN, &r);
    r.ifr_flags = IFF_UP | IFF_RUNNING;
    kernel_interface(fd, SIOCSIFFLAGS, &r);
    close(fd);
    (void)kernel_set("tcp_no_metrics_save", "1"); /* nothing of one connection counts for the next */
}

/* The next packet that the kernel sent; 0: none. What is not TCP over IPv4 is left out. */
static uint32_t kernel_next(uint8_t *packet, uint32_t room)
{
    for (;;) {
        ssize_t n = read(kernel_tun, packet, room);
        if (n < 0) {
            CHECK(errno == EAGAIN, "reading of the TUN: %s", strerror(errno));
            return 0;
        }
        if (n >= 40 && packet[0] == 0x45 && packet[9] == IPPROTO_TCP)
            return (uint32_t)n;
    }
}

static void kernel_take(const uint8_t *packet, uint32_t len)
{
    CHECK(write(kernel_tun, packet, len) == (ssize_t)len || errno == EINVAL, "writing to the TUN: %s", strerror(errno));
}

/* A socket that never waits, at a port of any of the kernel's addresses (0: any). */
static int kernel_socket(uint16_t port)
{
    struct sockaddr_in at = kernel_address(0, port);
    int on = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    CHECK(fd >= 0, "%s", strerror(errno));
    CHECK(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0);
    CHECK(bind(fd, (struct sockaddr *)&at, sizeof at) == 0, "port %u: %s", port, strerror(errno));
    return fd;
}

static void kernel_reset(int fd)
{
    struct linger l = {1, 0};
    CHECK(setsockopt(fd, SOL_SOCKET, SO_LINGER, &l, sizeof l) == 0);
    close(fd);
}

#endif
