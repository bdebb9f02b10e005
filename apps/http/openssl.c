/* See openssl.h. */
#include "openssl.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>

static struct cl_openssl functions;
static char why[200];
static bool loaded;

static void load(void)
{
    void *ssl = dlopen("libssl.so.3", RTLD_NOW | RTLD_LOCAL); /* which brings libcrypto.so.3 */
    if (!ssl) {
        snprintf(why, sizeof why, "%s", dlerror());
        return;
    }
#define FIND(returns, name, parameters)                                                                                \
    functions.name = (returns(*) parameters)dlsym(ssl, #name);                                                         \
    if (!functions.name) {                                                                                             \
        snprintf(why, sizeof why, "libssl.so.3 has no %s", #name);                                                     \
        return;                                                                                                        \
    }
    CL_OPENSSL(FIND)
#undef FIND
    loaded = true;
}

const struct cl_openssl *cl_openssl_loaded(void)
{
    return &functions;
}

const struct cl_openssl *cl_openssl_load(char err[256])
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, load);
    if (loaded)
        return &functions;
    snprintf(err, 256, "OpenSSL 3 cannot be loaded: %s (apt-get install libssl3)", why);
    return NULL;
}
