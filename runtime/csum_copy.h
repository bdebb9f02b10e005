/* Copy bytes and add them to an Internet checksum (RFC 1071) in one pass.
 *
 * What is summed while it is copied costs the load once. By AVX2 where the processor has it, which is looked at when
 * the library is loaded; else by two words of 64 bits. Both give the same once folded.
 *
 * Tests: tests/runtime/test_csum_copy.py (both against the definition, every length, under sanitizers). */
#ifndef CORELANE_RUNTIME_CSUM_COPY_H
#define CORELANE_RUNTIME_CSUM_COPY_H

#include <corelane/runtime/base.h>

// cffi: begin
/* Copy n bytes, and return the partial sum `sum` (net.h, cl_csum_add) with them added. They do not overlap. Only the
 * last part of a message may have an odd length. */
CL_API uint64_t cl_csum_copy(uint64_t sum, void *to, const void *from, size_t n);
/* The same by two words of 64 bits, whatever the machine has. */
CL_API uint64_t cl_csum_copy_plain(uint64_t sum, void *to, const void *from, size_t n);
/* Whether cl_csum_copy uses AVX2. */
CL_API bool cl_csum_copy_wide(void);
// cffi: end

#endif
