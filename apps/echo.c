/* See echo.h. */
#include "echo.h"

#include <string.h>

static int64_t answer(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room)
{
    if (len > room)
        return CL_HANDLER_ERROR;
    memcpy(reply, request, (size_t)len);
    return len;
}

int64_t cl_echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)arg;
    return cl_udp_from_server(cl_current_request()) ? 0 : answer(request, len, reply, room);
}

void cl_echo_burst(struct cl_udp_req *reqs, unsigned n, void *arg)
{
    (void)arg;
    for (unsigned i = 0; i < n; i++)
        if (!cl_udp_from_server(&reqs[i]))
            reqs[i].reply_len = answer(reqs[i].data, reqs[i].len, reqs[i].reply, reqs[i].room);
}
