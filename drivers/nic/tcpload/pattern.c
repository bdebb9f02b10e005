/* The bytes of every stream: tcpload.h. */
#include "tcpload.h"

#include "../../random.h"

#include <pthread.h>

static uint8_t pattern[CL_TCPLOAD_PATTERN + CL_TCPLOAD_ROOM];
static pthread_once_t pattern_made = PTHREAD_ONCE_INIT;

static void make_pattern(void)
{
    struct cl_random random = {0x74637061747465ull};
    for (uint32_t i = 0; i < CL_TCPLOAD_PATTERN; i++)
        pattern[i] = (uint8_t)cl_random_next(&random);
    for (uint32_t i = CL_TCPLOAD_PATTERN; i < sizeof pattern; i++)
        pattern[i] = pattern[i - CL_TCPLOAD_PATTERN];
}

const uint8_t *cl_tcpload_pattern(void)
{
    pthread_once(&pattern_made, make_pattern);
    return pattern;
}

uint32_t cl_tcpload_place(uint16_t port)
{
    return (port * 2654435761u >> 8) % CL_TCPLOAD_PATTERN;
}
