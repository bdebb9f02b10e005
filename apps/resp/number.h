/* Numbers as Redis reads and writes them. Reading is strict: no space, no plus sign, no leading zero. */
#ifndef CORELANE_APPS_RESP_NUMBER_H
#define CORELANE_APPS_RESP_NUMBER_H

#include "dict.h"

#define CL_RNUM_ROOM 24        /* for a signed integer of 64 bits */
#define CL_RNUM_DOUBLE_ROOM 64 /* for a double */
#define CL_RNUM_LONG_ROOM 5120 /* for a long double without an exponent */

/* False: it is none, or out of range. */
bool cl_rnum_int(struct cl_slice s, int64_t *out);
/* Unsigned, of 64 bits. */
bool cl_rnum_uint(struct cl_slice s, uint64_t *out);
/* As strtod takes it, all of it; no NaN. */
bool cl_rnum_double(struct cl_slice s, double *out);
bool cl_rnum_long_double(struct cl_slice s, long double *out);
/* Returns how many bytes; there is no zero at the end. */
unsigned cl_rnum_format(char *out, int64_t v);
unsigned cl_rnum_format_double(char *out, double v);
/* Without an exponent, 17 places at most, no zeros at the end. */
unsigned cl_rnum_format_long(char *out, long double v);

#endif
