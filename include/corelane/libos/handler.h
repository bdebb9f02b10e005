/* Compiled applications: how a shared object tells `corelane run ./x.so` what it serves. Part of the C API.
 *
 *   #include <corelane/libos/handler.h>
 *
 *   int64_t echo(const uint8_t *request, int64_t len, uint8_t *reply, int64_t room, void *arg) { ... }
 *   CL_HANDLER(echo, 9000);
 *
 *   cc -shared -fPIC -O2 echo.c -o echo.so $(corelane config --cflags --libs)
 *   corelane run ./echo.so
 *
 * Each macro leaves an ELF note (section .note.corelane, owner "corelane", type 1) that names an exported function, its
 * kind and its port. The notes are read from the file before anything of it is loaded, so that an object for another
 * machine or another ABI is refused with the reason instead of crashing (cli/elf.py).
 *
 * CL_HANDLER_ABI counts the incompatible changes of what such an object sees: cl_udp_handler, cl_udp_burst_handler,
 * cl_handler_setup, struct cl_udp_req, and the note. */
#ifndef CORELANE_LIBOS_HANDLER_H
#define CORELANE_LIBOS_HANDLER_H

#include <corelane/libos/udp.h>

CL_EXTERN_C_BEGIN

#ifdef __cplusplus
#define CL_HANDLER_EXPORT_ extern "C" CL_API
#else
#define CL_HANDLER_EXPORT_ extern CL_API
#endif

#define CL_HANDLER_ABI 1
#define CL_HANDLER_NOTE_TYPE 1
#define CL_HANDLER_REQUEST 1 /* a cl_udp_handler */
#define CL_HANDLER_BURST 2   /* a cl_udp_burst_handler */
#define CL_HANDLER_SETUP 3   /* a cl_handler_setup; port 0 */

/* Called once before the handlers are bound. `options`: the "key=value" words of `corelane run --option`, then NULL.
 * Stores in *arg what the handlers get as their `arg`. 0, or -errno with one line in err: the application is then
 * refused with it. */
typedef int (*cl_handler_setup)(struct cl_runtime *rt, const char *const *options, void **arg, char err[256]);

/* The note, as it lies in the file. */
struct cl_handler_note {
    uint32_t owner_bytes, desc_bytes, type;
    char owner[12];
    uint32_t abi;
    uint16_t kind, port;
    char symbol[64];
};
_Static_assert(sizeof(struct cl_handler_note) == 96, "read field by field by cli/elf.py");

#define CL_HANDLER_NOTE_(fn, kind, port)                                                                               \
    _Static_assert(sizeof(#fn) <= 64, "the name of a handler has 63 letters at most");                                 \
    _Static_assert((port) >= 0 && (port) < 65536, "UDP ports are 1 to 65535");                                         \
    static const struct cl_handler_note cl_note_##fn __attribute__((used, section(".note.corelane"), aligned(4))) = {  \
        9, 72, CL_HANDLER_NOTE_TYPE, "corelane", CL_HANDLER_ABI, kind, port, #fn}

/* Serve UDP port `port` with the function `fn`, one request a call. In C++ these macros stand above the function, which
 * gets its C name by them. */
#define CL_HANDLER(fn, port)                                                                                           \
    CL_HANDLER_EXPORT_ int64_t fn(const uint8_t *, int64_t, uint8_t *, int64_t, void *);                               \
    CL_HANDLER_NOTE_(fn, CL_HANDLER_REQUEST, port)
/* The same, up to CL_UDP_BURST requests a call. */
#define CL_BURST_HANDLER(fn, port)                                                                                     \
    CL_HANDLER_EXPORT_ void fn(struct cl_udp_req *, unsigned, void *);                                                 \
    CL_HANDLER_NOTE_(fn, CL_HANDLER_BURST, port)
/* Call `fn` first. At most one an object. */
#define CL_SETUP(fn)                                                                                                   \
    CL_HANDLER_EXPORT_ int fn(struct cl_runtime *, const char *const *, void **, char *);                              \
    CL_HANDLER_NOTE_(fn, CL_HANDLER_SETUP, 0)

CL_EXTERN_C_END
#endif
