/* See zipf.h. The hat is the continuous h(x) = x^-s with integral H; a uniform u between H's ends is inverted, rounded
 * to the integer k whose column it falls into, and accepted if u lies in the part of the column as wide as h(k). */
#include "zipf.h"

#include "loadgen.h"
#include <errno.h>

/* (e^x - 1) / x and log(1 + x) / x, continued through 0, so that s = 1 is no special case. */
static double expm1_over(double x)
{
    return fabs(x) > 1e-8 ? expm1(x) / x : 1 + x / 2;
}

static double log1p_over(double x)
{
    return fabs(x) > 1e-8 ? log1p(x) / x : 1 - x / 2;
}

static double density(double s, double x)
{
    return exp(-s * log(x));
}

/* Integral of x^-s from 1 to x: (x^(1-s) - 1) / (1 - s), or log x for s = 1. */
static double integral(double s, double x)
{
    double l = log(x);
    return expm1_over((1 - s) * l) * l;
}

static double integral_inverse(double s, double y)
{
    double t = cl_max(y * (1 - s), -1.0); /* rounding must not leave the domain of log1p */
    return exp(log1p_over(t) * y);
}

void cl_zipf_init(struct cl_zipf *z, double exponent, uint32_t n)
{
    z->exponent = exponent;
    z->n = n;
    z->low = integral(exponent, 1.5) - 1; /* rank 1's column is exactly h(1) = 1 wide */
    z->high = integral(exponent, n + 0.5);
    z->shortcut = 2 - integral_inverse(exponent, integral(exponent, 2.5) - density(exponent, 2));
}

uint32_t cl_zipf_draw(const struct cl_zipf *z, struct cl_random *r)
{
    for (;;) {
        double u = z->high + cl_random_unit(r) * (z->low - z->high);
        double x = integral_inverse(z->exponent, u);
        double k = floor(x + 0.5);
        k = cl_max(1.0, cl_min(k, z->n));
        if (k - x <= z->shortcut || u >= integral(z->exponent, k + 0.5) - density(z->exponent, k))
            return (uint32_t)k - 1;
    }
}

int cl_load_draw_zipf(uint64_t seed, double exponent, uint32_t keys, uint32_t *out, uint32_t n)
{
    if (keys == 0 || !(exponent >= 0 && exponent < 100))
        return -EINVAL;
    struct cl_random r = {seed ^ 0x706f70756c617269ull};
    struct cl_zipf z;
    cl_zipf_init(&z, exponent, keys);
    for (uint32_t i = 0; i < n; i++)
        out[i] = exponent > 0 ? cl_zipf_draw(&z, &r) : (uint32_t)cl_random_below(&r, keys);
    return 0;
}
