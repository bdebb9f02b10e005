/* See echo.h. */
#include "echo.h"

#include <string.h>

int64_t cl_echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    if (len > room)
        return CL_HANDLER_ERROR;
    memcpy(reply, request, (size_t)len);
    return len;
}

void cl_echo_burst(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    for (unsigned i = 0; i < n; i++)
        reqs[i].reply_len = cl_echo(reqs[i].data, reqs[i].len, reqs[i].reply, reqs[i].room, arg);
}
