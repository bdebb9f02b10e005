/* Random numbers for choices that nobody has to be unable to guess: samples, levels, members. See resp.h. */
#include "resp.h"

uint64_t cl_resp_random(void *arg)
{
    struct cl_resp *r = arg;
    r->random += 0x9e3779b97f4a7c15ull; /* splitmix64: Steele, Lea, Flood, OOPSLA 2014 */
    uint64_t z = r->random;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}
