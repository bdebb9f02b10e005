/* Control data of datagrams: where each came to, its TTL and TOS, in the order in which Linux tells them
 * (net/ipv4/udp.c, net/ipv6/udp.c); and from which of our addresses one is to be sent, of which there is one. */
#include "datagrams.h"
#include "linux.h"
#include "memory.h"
#include "names.h"

#include <netinet/in.h>
#include <string.h>

enum { INFO6, INFO, TTL, TOS, TO, TOLD }; /* bits of `tells` */

static const struct told {
    int level, option;
} told[TOLD] = {[INFO6] = {IPPROTO_IPV6, IPV6_RECVPKTINFO},
                [INFO] = {IPPROTO_IP, IP_PKTINFO},
                [TTL] = {IPPROTO_IP, IP_RECVTTL},
                [TOS] = {IPPROTO_IP, IP_RECVTOS},
                [TO] = {IPPROTO_IP, IP_RECVORIGDSTADDR}};

/* What Linux has of it: an option may be given as a byte, too. */
static bool is_on(int fd, const struct told *t)
{
    int on = 0;
    socklen_t len = sizeof on;
    return cl_linux(SYS_getsockopt, fd, t->level, t->option, &on, &len) == 0 && on;
}

void cl_posix_control_set(int fd, struct cl_posix_socket *s, int level, int name)
{
    for (int i = 0; i < TOLD; i++) {
        if (told[i].level != level || told[i].option != name)
            continue;
        if (is_on(fd, &told[i]))
            __atomic_fetch_or(&s->tells, 1u << i, __ATOMIC_RELAXED);
        else
            __atomic_fetch_and(&s->tells, ~(1u << i), __ATOMIC_RELAXED);
    }
}

/* One of them, into what is left of the caller's room; cut if that is too small (net/core/scm.c: put_cmsg). */
static void put(struct msghdr *m, size_t *used, int level, int type, const void *value, size_t bytes)
{
    size_t left = m->msg_control ? m->msg_controllen - *used : 0;
    struct cmsghdr c = {.cmsg_len = cl_min((size_t)CMSG_LEN(bytes), left), .cmsg_level = level, .cmsg_type = type};
    if (left < CMSG_LEN(bytes))
        m->msg_flags |= MSG_CTRUNC;
    if (left < sizeof c)
        return;
    char *at = (char *)m->msg_control + *used;
    if (!cl_posix_can_write(at, c.cmsg_len))
        return; /* the call goes on */
    memcpy(at, &c, sizeof c);
    memcpy(at + CMSG_LEN(0), value, c.cmsg_len - CMSG_LEN(0));
    *used += cl_min((size_t)CMSG_SPACE(bytes), left);
}

static void put_info(struct msghdr *m, size_t *used, const struct cl_udp_origin *o)
{
    uint32_t own = o->to >> 24 == 127 ? o->to : cl_posix_address();
    struct in_pktinfo info = {
        .ipi_ifindex = cl_posix_interface(), .ipi_spec_dst.s_addr = htonl(own), .ipi_addr.s_addr = htonl(o->to)};
    put(m, used, IPPROTO_IP, IP_PKTINFO, &info, sizeof info);
}

static void put_info6(struct msghdr *m, size_t *used, const struct cl_udp_origin *o)
{
    struct sockaddr_in6 name;
    socklen_t len = sizeof name;
    cl_posix_name_write(AF_INET6, &(struct cl_tcp_addr){o->to, 0, 0}, (struct sockaddr *)&name, &len);
    struct in6_pktinfo info = {.ipi6_addr = name.sin6_addr, .ipi6_ifindex = (unsigned)cl_posix_interface()};
    put(m, used, IPPROTO_IPV6, IPV6_PKTINFO, &info, sizeof info);
}

static void put_name(struct msghdr *m, size_t *used, const struct cl_udp_origin *o, uint16_t port)
{
    struct sockaddr_in name = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(o->to)};
    put(m, used, IPPROTO_IP, IP_ORIGDSTADDR, &name, sizeof name);
}

void cl_posix_control_tell(const struct cl_posix_socket *s, struct msghdr *m, const struct cl_udp_origin *origin)
{
    uint32_t tells = cl_load_relaxed(&s->tells); /* it changes between two datagrams, or not yet */
    size_t used = 0;
    if (tells & 1u << INFO6)
        put_info6(m, &used, origin);
    if (tells & 1u << INFO)
        put_info(m, &used, origin);
    if (tells & 1u << TTL)
        put(m, &used, IPPROTO_IP, IP_TTL, &(int){origin->ttl}, sizeof(int));
    if (tells & 1u << TOS)
        put(m, &used, IPPROTO_IP, IP_TOS, &origin->tos, sizeof origin->tos);
    if (tells & 1u << TO)
        put_name(m, &used, origin, s->own.port);
    m->msg_controllen = used;
}

/* Of a piece that says from which address: whether that is ours, or any. */
static bool is_own(uint32_t ipv4_be)
{
    return ipv4_be == 0 || ntohl(ipv4_be) == cl_posix_address();
}

static bool may_come_from(const struct cmsghdr *c)
{
    struct in_pktinfo info;
    struct in6_pktinfo info6;
    uint32_t last;
    if (c->cmsg_level == IPPROTO_IP) {
        memcpy(&info, CMSG_DATA(c), sizeof info);
        return is_own(info.ipi_spec_dst.s_addr);
    }
    memcpy(&info6, CMSG_DATA(c), sizeof info6);
    memcpy(&last, &info6.ipi6_addr.s6_addr[12], sizeof last);
    return IN6_IS_ADDR_UNSPECIFIED(&info6.ipi6_addr) || (IN6_IS_ADDR_V4MAPPED(&info6.ipi6_addr) && is_own(last));
}

static int check_one(const struct cmsghdr *c)
{
    bool ipv4 = c->cmsg_level == IPPROTO_IP && c->cmsg_type == IP_PKTINFO;
    if (ipv4 || (c->cmsg_level == IPPROTO_IPV6 && c->cmsg_type == IPV6_PKTINFO)) {
        bool whole = c->cmsg_len == CMSG_LEN(ipv4 ? sizeof(struct in_pktinfo) : sizeof(struct in6_pktinfo));
        return !whole ? -EINVAL : may_come_from(c) ? 0 : -ENETUNREACH;
    }
    if (c->cmsg_level == IPPROTO_IP && (c->cmsg_type == IP_TTL || c->cmsg_type == IP_TOS)) {
        cl_posix_say_once("IP_TTL and IP_TOS of one datagram have no effect on sockets of the dataplane");
        return 0;
    }
    return (int)cl_posix_refuse(
        "sendmsg with control data (but IP_PKTINFO) is not to be had of sockets of the dataplane", EINVAL);
}

int cl_posix_control_check(const struct msghdr *m)
{
    if (cl_likely(!m->msg_control || !m->msg_controllen))
        return 0;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(m); c; c = CMSG_NXTHDR((struct msghdr *)(uintptr_t)m, c)) {
        size_t before = (size_t)((char *)c - (char *)m->msg_control);
        int rc = c->cmsg_len < sizeof *c || c->cmsg_len > m->msg_controllen - before ? -EINVAL : check_one(c);
        if (rc)
            return rc;
    }
    return 0;
}
