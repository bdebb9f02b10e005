/* CRC32C (Castagnoli, as of iSCSI, ext4, SCTP), by the instructions of the machine where it has them.
 *
 * The instruction takes three cycles and one can begin each cycle, so inputs of 96 bytes and more are done as three
 * streams that are joined by carry-less multiplications (PCLMULQDQ; V. Gopal et al., "Fast CRC Computation for iSCSI
 * Polynomial Using CRC32 Instruction", Intel 2011). Without those, one stream. Tests:
 * tests/libos/storage/test_crc32c.py. */
#ifndef CORELANE_LIBOS_STORAGE_CRC32C_H
#define CORELANE_LIBOS_STORAGE_CRC32C_H

#include <corelane/runtime/base.h>

// cffi: begin
/* Checksum of data behind what `crc` is the checksum of; crc 0 to begin: cl_crc32c(cl_crc32c(0, a), b) is that of a and
 * b. */
CL_API uint32_t cl_crc32c(uint32_t crc, const void *data, uint64_t bytes);
/* The same by tables, whatever the machine has. */
CL_API uint32_t cl_crc32c_soft(uint32_t crc, const void *data, uint64_t bytes);
/* Whether cl_crc32c uses instructions of the machine. */
CL_API bool cl_crc32c_hardware(void);
// cffi: end

#endif
