/* See names.h. */
#include "names.h"
#include "memory.h"

#include <errno.h>
#include <limits.h>
#include <netinet/in.h>
#include <string.h>

#define IPV6_LEAST 24 /* without sin6_scope_id: RFC 2133 had none, and Linux takes it so */

/* net/socket.c: move_addr_to_kernel. */
int cl_posix_name_check(const struct sockaddr *name, socklen_t len)
{
    if (len > sizeof(struct sockaddr_storage))
        return -EINVAL;
    return cl_posix_can_read(name, len) ? 0 : -EFAULT;
}

int cl_posix_name_read(int domain, const struct sockaddr *name, socklen_t len, struct cl_tcp_addr *out, bool *is_ipv4)
{
    struct sockaddr_in in;
    struct sockaddr_in6 in6 = {0};
    *is_ipv4 = true;
    int rc = cl_posix_name_check(name, len);
    if (rc || len < (domain == AF_INET ? sizeof in : IPV6_LEAST))
        return rc ? rc : -EINVAL;
    if (domain == AF_INET) {
        memcpy(&in, name, sizeof in);
        *out = (struct cl_tcp_addr){ntohl(in.sin_addr.s_addr), ntohs(in.sin_port), 0};
        /* AF_UNSPEC is taken with 0.0.0.0, as Linux does. */
        return in.sin_family == AF_INET || (in.sin_family == AF_UNSPEC && out->ipv4 == 0) ? 0 : -EAFNOSUPPORT;
    }
    memcpy(&in6, name, cl_min((size_t)len, sizeof in6));
    uint32_t last;
    memcpy(&last, &in6.sin6_addr.s6_addr[12], 4);
    bool any = IN6_IS_ADDR_UNSPECIFIED(&in6.sin6_addr);
    *is_ipv4 = any || IN6_IS_ADDR_V4MAPPED(&in6.sin6_addr);
    *out = (struct cl_tcp_addr){any ? INADDR_ANY : ntohl(last), ntohs(in6.sin6_port), 0};
    return in6.sin6_family == AF_INET6 ? 0 : -EAFNOSUPPORT;
}

/* net/socket.c: move_addr_to_user. */
int cl_posix_name_write(int domain, const struct cl_tcp_addr *a, struct sockaddr *name, socklen_t *len)
{
    if (!cl_posix_can_write(len, sizeof *len))
        return -EFAULT;
    if (*len > INT_MAX)
        return -EINVAL;
    struct sockaddr_in in = {.sin_family = AF_INET, .sin_port = htons(a->port), .sin_addr.s_addr = htonl(a->ipv4)};
    struct sockaddr_in6 in6 = {.sin6_family = AF_INET6, .sin6_port = htons(a->port)};
    socklen_t whole = domain == AF_INET ? sizeof in : sizeof in6;
    if (a->ipv4) {
        uint32_t last = htonl(a->ipv4);
        in6.sin6_addr.s6_addr[10] = in6.sin6_addr.s6_addr[11] = 0xff;
        memcpy(&in6.sin6_addr.s6_addr[12], &last, 4);
    }
    socklen_t room = cl_min(*len, whole);
    *len = whole;
    if (!cl_posix_can_write(name, room))
        return -EFAULT;
    if (room)
        memcpy(name, domain == AF_INET ? (const void *)&in : (const void *)&in6, room);
    return 0;
}
