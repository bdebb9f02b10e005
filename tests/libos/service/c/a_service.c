/* A service as corelane compile makes it, by hand: for what cl_service_open looks at. ABI, LAYOUT, WORK and CPU say
 * what it was made for; MAGIC, whether it is one. */
#include <corelane/libos/service.h>

#ifndef MAGIC
#define MAGIC CL_SERVICE_MAGIC
#endif
#ifndef ABI
#define ABI CL_SERVICE_ABI
#endif
#ifndef WORK
#define WORK 1
#endif
#ifdef CPU
#define TEXT(word) TEXT_OF(word)
#define TEXT_OF(word) #word
#elif defined(__x86_64__)
#define CPU x86 - 64
#define TEXT(word) "x86-64"
#else
#define TEXT(word) "armv8-a"
#endif

static int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg)
{
    (void)room, (void)arg;
    __builtin_memcpy(reply, request, (size_t)len);
    return len;
}

static const struct cl_service_work work[1] = {
    {.kind = CL_SERVICE_UDP, .port = 9000, .name = "echo", .entry = (void *)echo}};

CL_API extern const struct cl_service corelane_service;
const struct cl_service corelane_service = {.magic = MAGIC,
                                            .abi = ABI,
                                            .n_work = WORK,
                                            .layout = LAYOUT,
                                            .corelane = "0",
                                            .cpu = TEXT(CPU),
                                            .name = "hand",
                                            .work = work};
