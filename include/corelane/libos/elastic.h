/* Memory of batch work that can be given back while it is used, when the latency class needs it (docs/batch-memory.md).
 * Part of the C API (libos.h).
 *
 *   struct cl_elastic *cache;
 *   cl_elastic_new(rt, 1 << 30, 1 << 24, &cache, err);      a GiB at most, 16 MiB at least
 *   uint64_t have = cl_elastic_use(cache, 1 << 30);
 *   for (;;) {
 *       work_on(cl_elastic_base(cache), have);
 *       if (cl_elastic_limit(cache) != have)                a load: where the work can do with less, or with more
 *           have = cl_elastic_use(cache, 1 << 30);
 *   }
 *
 * The iokernel says by a word how much the application may hold. The work looks at it where it can do with less, as
 * often as it does at probes, and says what it uses from then on: what lies beyond is given back to Linux at once. Or
 * it leaves a function to be called when less may be held, which chooses what goes (cl_elastic_on_shrink). Who does not
 * shrink in time is shown, denied cores, or ended, as the configuration says.
 *
 * Of each runtime one. It lives until cl_elastic_delete, also after its runtime; then there is no limit. */
#ifndef CORELANE_LIBOS_ELASTIC_H
#define CORELANE_LIBOS_ELASTIC_H

#include <corelane/runtime/base.h>

CL_EXTERN_C_BEGIN

// cffi: begin
struct cl_runtime;
struct cl_elastic;

/* Reserve `bytes` of addresses, none of which takes memory yet; it can do with `least`. -EINVAL: least is more than
 * bytes, or bytes is 0; -EEXIST: the runtime has one; -ENOMEM; with one line in err. Any thread. */
CL_API int cl_elastic_new(struct cl_runtime *rt, uint64_t bytes, uint64_t least, struct cl_elastic **out,
                          char err[256]);
/* Not while its runtime is being deleted, or anybody uses it, nor by what cl_elastic_on_shrink calls. NULL is
 * allowed. */
CL_API void cl_elastic_delete(struct cl_elastic *e);
/* Page-aligned. */
CL_API void *cl_elastic_base(const struct cl_elastic *e);
/* Bytes that it may hold at this moment: `least` to `bytes`. A load or two. Any thread. */
CL_API uint64_t cl_elastic_limit(const struct cl_elastic *e);
/* From now on only the first bytes are used, as many as are asked for and allowed. Returns how many these are. What
 * lies beyond is given back, and reads as zeros when it is used again. One thread at a time. */
CL_API uint64_t cl_elastic_use(struct cl_elastic *e, uint64_t bytes);
/* What was used last. Any thread. */
CL_API uint64_t cl_elastic_held(const struct cl_elastic *e);
/* Less may be held than is: `limit` bytes. Moves what it wants to keep into the first bytes, and returns how many of
 * them are used from now on, `limit` at most: what lies beyond is given back. More than `limit`: nothing is given back,
 * and it is asked again a while later. The iokernel's shrink_ms runs meanwhile. */
typedef uint64_t (*cl_elastic_shrink)(void *arg, uint64_t limit);
/* Have `shrink` called from now on, within 20 ms or so, on a thread of its own: it may call what any thread may, keeps
 * the work from the bytes by its own lock, and the work calls cl_elastic_use under that lock, too, which while there is
 * a `shrink` gives back what it is told to and no more. NULL: no longer; it is not being called when this returns. One
 * thread at a time. -EDEADLK: called by `shrink` itself; -EAGAIN, -ENOMEM: there is no thread; with one line in err. */
CL_API int cl_elastic_on_shrink(struct cl_elastic *e, cl_elastic_shrink shrink, void *arg, char err[256]);
// cffi: end

CL_EXTERN_C_END
#endif
