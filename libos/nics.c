/* See nics.h. */
#include "nics.h"

#include "../drivers/nic/af_xdp/af_xdp.h"

#include <corelane/drivers/memory.h>
#include <corelane/drivers/tap.h>

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BUFFERS_PER_QUEUE 1024

static int open_tap(const struct cl_nic_choice *choice, struct cl_nic **nic, char *err)
{
    char name[16];
    uint8_t *a = (uint8_t *)&(uint32_t){htonl(choice->address)};
    struct cl_tap_config c = {.ifname = choice->name + strlen("tap:"),
                              .n_queues = choice->queues,
                              .n_buffers = choice->queues * BUFFERS_PER_QUEUE,
                              .mtu = 1500,
                              .mac = {0x02, 0xc1, a[0], a[1], a[2], a[3]}};
    int rc = cl_tap_nic_new(&c, nic, name, err);
    if (rc == 0 && choice->host && (rc = cl_tap_set_up(name, c.mtu, htonl(choice->host), choice->host_prefix, err)))
        cl_nic_close(*nic);
    return rc;
}

/* A wire whose other end nobody reads: what is sent to our own address comes back all the same. */
static int open_memory(const struct cl_nic_choice *choice, struct cl_nic **nic, char *err)
{
    struct cl_nic *ends[2];
    struct cl_memory_config c = {.queues = {choice->queues, 1}, .drop_when_full = 1};
    int rc = cl_memory_link_new(&c, ends, err);
    *nic = ends[0];
    return rc;
}

int cl_nic_choose(const struct cl_nic_choice *choice, struct cl_nic **out, char err[256])
{
    if (strcmp(choice->name, "memory") == 0)
        return open_memory(choice, out, err);
    if (strncmp(choice->name, "tap:", 4) == 0)
        return open_tap(choice, out, err);
    if (strncmp(choice->name, "af_xdp:", 7) == 0)
        return cl_af_xdp_nic_given(choice->name + 7, choice->queues, choice->xskmap_fd, out, err);
    snprintf(err, 256, "there is no NIC %.100s here: tap:NAME, af_xdp:NAME or memory", choice->name);
    return -EINVAL;
}
