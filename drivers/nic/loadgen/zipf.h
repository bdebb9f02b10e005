/* Zipf-distributed ranks: P(rank i) proportional to (i + 1)^-exponent for i = 0..n-1. Exact for any exponent >= 0, one
 * too, with no table of n entries: rejection-inversion (Hoermann and Derflinger, "Rejection-inversion to generate
 * variates from monotone discrete distributions", ACM TOMACS 6(3), 1996). */
#ifndef CORELANE_DRIVERS_NIC_LOADGEN_ZIPF_H
#define CORELANE_DRIVERS_NIC_LOADGEN_ZIPF_H

#include "../../random.h"

struct cl_zipf {
    double exponent;
    double n;
    double low, high; /* integral of the density's hat below rank 1's column, and up to n + 1/2 */
    double shortcut;  /* values this near below an integer are accepted without computing */
};

/* n >= 1, exponent >= 0 and finite. */
void cl_zipf_init(struct cl_zipf *z, double exponent, uint32_t n);
/* A rank, 0 being the most popular. */
uint32_t cl_zipf_draw(const struct cl_zipf *z, struct cl_random *r);

#endif
