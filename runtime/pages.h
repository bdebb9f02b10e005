/* Memory for rings and rooms of many MiB that the data path goes through from end to end.
 *
 * Where the kernel gives a page only when it is first written (10 us each in a virtual machine, measured), the first
 * lap around such a ring pays for it message by message. So pages are touched here, when the memory is taken, and large
 * ones are asked for. */
#ifndef CORELANE_RUNTIME_PAGES_H
#define CORELANE_RUNTIME_PAGES_H

#include <corelane/runtime/base.h>

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23 /* Linux 5.14 */
#endif

#define CL_PAGES_LARGE (2u << 20) /* bytes of a huge page; less than that stays untouched, on ordinary pages */

/* `bytes` zeros, which free() gives back; NULL without memory. From CL_PAGES_LARGE on they begin at a multiple of it,
 * lie on huge pages where the kernel has them, and are all in memory when this returns: so ask for what will be
 * used. */
void *cl_pages_new(uint64_t bytes);

/* Have the pages of [from, from + bytes) of writable memory now, by one call of the kernel's; what they hold
 * stays. False: the kernel does not do that (before Linux 5.14), or has none. */
bool cl_pages_fetch(void *from, uint64_t bytes);

#endif
