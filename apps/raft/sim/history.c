/* The search for an order (see history.h). */
#include "history.h"
#include <stdlib.h>
#include <string.h>

#define PRIME ((1ull << 61) - 1)
#define BASE 0x0b50c1d7a11e5eedull /* any number below PRIME; texts collide with probability of bytes / 2^61 */
#define EMPTY_TEXT 1               /* what digests begin with, so that zeros in front count */
#define MEMO_FIRST 1024

/* An operation in the list of those not carried out yet, which is in order of invocation. */
struct item {
    const struct cl_history_op *op;
    uint32_t before, after;
};

/* One step of the order found so far. */
struct step {
    uint64_t state;  /* before it */
    uint32_t choice; /* which of the candidates it was, in the order in which they are tried */
    uint32_t item;
};

struct pair {
    uint64_t a, b;
};

struct cl_history {
    uint64_t max_configurations, max_bytes;
    struct pair *memo; /* open addressing; {0, 0} is free */
    uint64_t room, used;
    const struct cl_history_op **sorted;
    struct item *items; /* of one key, 1..n; 0 is the list's head */
    struct step *steps;
    uint32_t *candidates;
    uint64_t n_room;
};

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

static uint64_t mod_mul_add(uint64_t a, uint64_t b, uint64_t c)
{
    unsigned __int128 wide = (unsigned __int128)a * b + c;
    uint64_t folded = (uint64_t)(wide & PRIME) + (uint64_t)(wide >> 61);
    return folded >= PRIME ? folded - PRIME : folded;
}

static uint64_t polynomial(uint64_t start, const uint8_t *text, uint64_t bytes)
{
    for (uint64_t i = 0; i < bytes; i++)
        start = mod_mul_add(start, BASE, text[i]);
    return start;
}

uint64_t cl_history_digest(const uint8_t *text, uint64_t bytes)
{
    return polynomial(EMPTY_TEXT, text, bytes);
}

uint64_t cl_history_piece(const uint8_t *text, uint64_t bytes)
{
    return polynomial(0, text, bytes);
}

uint64_t cl_history_factor(uint64_t bytes)
{
    uint64_t factor = 1;
    for (uint64_t i = 0; i < bytes; i++)
        factor = mod_mul_add(factor, BASE, 0);
    return factor;
}

/* APPEND and ADD. */
static bool apply_change(const struct cl_history_op *op, uint64_t state, uint64_t *next)
{
    bool append = op->kind == CL_HISTORY_APPEND;
    if (state == CL_HISTORY_ABSENT) {
        if (op->flags & CL_HISTORY_NEEDS_KEY) {
            *next = state;
            return op->flags & CL_HISTORY_REFUSED;
        }
        state = append ? EMPTY_TEXT : 0;
    }
    if (op->flags & CL_HISTORY_REFUSED)
        return false;
    *next = append ? mod_mul_add(state % PRIME, op->other, op->input) : state + op->input;
    return !(op->flags & CL_HISTORY_HAS_OUTPUT) || *next == op->output;
}

bool cl_history_apply(const struct cl_history_op *op, uint64_t state, uint64_t *next)
{
    bool refused = op->flags & CL_HISTORY_REFUSED;
    *next = state;
    switch (op->kind) {
    case CL_HISTORY_GET:
        return state == op->output;
    case CL_HISTORY_PUT:
        *next = op->input;
        return !refused;
    case CL_HISTORY_CAS:
        if (!refused)
            *next = op->input;
        return (state == op->other) == !refused;
    case CL_HISTORY_DELETE:
        *next = CL_HISTORY_ABSENT;
        return (state == CL_HISTORY_ABSENT) == refused;
    case CL_HISTORY_APPEND:
    case CL_HISTORY_ADD:
        return apply_change(op, state, next);
    default:
        return false;
    }
}

struct cl_history *cl_history_new(uint64_t max_configurations, uint64_t max_bytes)
{
    struct cl_history *h = calloc(1, sizeof(*h));
    if (!h)
        return NULL;
    h->max_configurations = max_configurations;
    h->max_bytes = max_bytes < 65536 ? 65536 : max_bytes;
    h->room = MEMO_FIRST;
    h->memo = calloc(h->room, sizeof(*h->memo));
    if (!h->memo) {
        free(h);
        return NULL;
    }
    return h;
}

void cl_history_delete(struct cl_history *h)
{
    if (!h)
        return;
    free(h->memo);
    free(h->sorted);
    free(h->items);
    free(h->steps);
    free(h->candidates);
    free(h);
}

/* Remember a configuration: 1 if it is new, 0 if it is known. */
static int memo_put(struct pair *memo, uint64_t room, struct pair p)
{
    uint64_t i = p.a & (room - 1);
    while (memo[i].a | memo[i].b) {
        if (memo[i].a == p.a && memo[i].b == p.b)
            return 0;
        i = (i + 1) & (room - 1);
    }
    memo[i] = p;
    return 1;
}

/* As memo_put, growing the table: -1 if it may not grow any more. */
static int remember(struct cl_history *h, struct pair p)
{
    if (h->used * 4 >= h->room * 3) {
        uint64_t room = h->room * 2;
        struct pair *memo = room * sizeof(*memo) > h->max_bytes ? NULL : calloc(room, sizeof(*memo));
        if (!memo)
            return -1;
        for (uint64_t i = 0; i < h->room; i++)
            if (h->memo[i].a | h->memo[i].b)
                memo_put(memo, room, h->memo[i]);
        free(h->memo);
        h->memo = memo;
        h->room = room;
    }
    int fresh = memo_put(h->memo, h->room, p);
    h->used += (uint64_t)fresh;
    return fresh;
}

static void forget(struct cl_history *h)
{
    if (h->used)
        memset(h->memo, 0, h->room * sizeof(*h->memo));
    h->used = 0;
}

/* The search over one key. */
struct search {
    struct cl_history *h;
    uint32_t n, known, known_left;
    uint64_t state;
    struct pair set;  /* exclusive or of the hashes of what has been carried out */
    uint32_t depth;   /* steps made */
    uint64_t deepest; /* most known operations carried out */
    const struct cl_history_op *stuck;
};

static void toggle(struct search *s, uint32_t item)
{
    s->set.a ^= mix(2 * (uint64_t)item);
    s->set.b ^= mix(~(uint64_t)item);
}

static void lift(struct search *s, uint32_t i)
{
    struct item *items = s->h->items, *it = &items[i];
    items[it->before].after = it->after;
    items[it->after].before = it->before;
    s->known_left -= it->op->returned != CL_HISTORY_UNKNOWN;
    toggle(s, i);
}

static void put_back(struct search *s, uint32_t i)
{
    struct item *items = s->h->items, *it = &items[i];
    items[it->before].after = i;
    items[it->after].before = i;
    s->known_left += it->op->returned != CL_HISTORY_UNKNOWN;
    toggle(s, i);
}

/* Those that may come next: invoked before anything that is left returned. In the order in which they are tried: by
 * return (unknown is the largest number). The list is sorted by invocation, so the scan ends early. */
static uint32_t find_candidates(struct search *s)
{
    struct item *items = s->h->items;
    uint32_t *found = s->h->candidates, n = 0;
    uint64_t first_return = CL_HISTORY_UNKNOWN;
    for (uint32_t i = items[0].after; i && items[i].op->invoked <= first_return; i = items[i].after) {
        uint64_t returned = items[i].op->returned;
        uint32_t at = n++;
        for (; at && items[found[at - 1]].op->returned > returned; at--)
            found[at] = found[at - 1];
        found[at] = i;
        if (returned < first_return)
            first_return = returned;
    }
    return n;
}

/* Make the first step from here, beginning with candidate `from`, that leads to a configuration not known. 1: made, 0:
 * there is none, -1: out of memory. */
static int advance(struct search *s, uint32_t from)
{
    struct cl_history *h = s->h;
    uint32_t n = find_candidates(s);
    uint64_t done = s->known - s->known_left;
    if (n && (!s->stuck || done > s->deepest)) {
        s->deepest = done;
        s->stuck = h->items[h->candidates[0]].op;
    }
    for (uint32_t c = from; c < n; c++) {
        uint32_t item = h->candidates[c];
        uint64_t next;
        if (!cl_history_apply(h->items[item].op, s->state, &next))
            continue;
        lift(s, item);
        int fresh = remember(h, (struct pair){s->set.a ^ mix(next), s->set.b ^ mix(next + BASE)});
        if (fresh > 0) {
            h->steps[s->depth++] = (struct step){s->state, c, item};
            s->state = next;
            return 1;
        }
        put_back(s, item);
        if (fresh < 0)
            return -1;
    }
    return 0;
}

static int search_key(struct search *s, uint64_t *configurations)
{
    uint64_t entered = 0;
    uint32_t from = 0;
    int verdict = CL_HISTORY_RIGHT;
    while (s->known_left) {
        int made = entered < s->h->max_configurations ? advance(s, from) : -1;
        if (made < 0) {
            verdict = CL_HISTORY_UNDECIDED;
            break;
        }
        if (made) {
            entered++;
            from = 0;
        } else if (s->depth) {
            struct step *back = &s->h->steps[--s->depth];
            put_back(s, back->item);
            s->state = back->state;
            from = back->choice + 1;
        } else {
            verdict = CL_HISTORY_WRONG;
            break;
        }
    }
    *configurations += entered;
    return verdict;
}

/* A read of unknown outcome says nothing. */
static bool matters(const struct cl_history_op *op)
{
    return op->kind != CL_HISTORY_GET || op->returned != CL_HISTORY_UNKNOWN;
}

static int check_key(struct cl_history *h, const struct cl_history_op **ops, uint32_t n,
                     const struct cl_history_op *all, struct cl_history_result *out)
{
    struct search s = {.h = h, .state = CL_HISTORY_ABSENT};
    for (uint32_t i = 0; i < n; i++) {
        if (!matters(ops[i]))
            continue;
        s.n++;
        h->items[s.n] = (struct item){ops[i], s.n - 1, s.n + 1};
        s.known_left += ops[i]->returned != CL_HISTORY_UNKNOWN;
    }
    s.known = s.known_left;
    h->items[0].after = s.n ? 1 : 0;
    h->items[0].before = s.n;
    h->items[s.n].after = 0;
    forget(h);
    int verdict = search_key(&s, &out->configurations);
    if (verdict != CL_HISTORY_RIGHT) {
        out->bad_key = ops[0]->key;
        out->bad_ops = s.known;
        out->bad_done = s.deepest;
        out->bad_op = s.stuck ? (uint64_t)(s.stuck - all) : 0;
    }
    return verdict;
}

static int by_key_and_time(const void *a, const void *b)
{
    const struct cl_history_op *x = *(const struct cl_history_op *const *)a,
                               *y = *(const struct cl_history_op *const *)b;
    if (x->key != y->key)
        return x->key < y->key ? -1 : 1;
    if (x->invoked != y->invoked)
        return x->invoked < y->invoked ? -1 : 1;
    return (x > y) - (x < y);
}

/* Room for n operations. The old is of no further use. */
static bool make_room(struct cl_history *h, uint64_t n)
{
    if (n <= h->n_room)
        return true;
    if (n > UINT32_MAX / 2)
        return false;
    free(h->sorted);
    free(h->items);
    free(h->steps);
    free(h->candidates);
    h->n_room = 0;
    h->sorted = malloc(n * sizeof(*h->sorted));
    h->items = malloc((n + 1) * sizeof(*h->items));
    h->steps = malloc(n * sizeof(*h->steps));
    h->candidates = malloc(n * sizeof(*h->candidates));
    if (!h->sorted || !h->items || !h->steps || !h->candidates)
        return false;
    h->n_room = n;
    return true;
}

int cl_history_check(struct cl_history *h, const struct cl_history_op *ops, uint64_t n, struct cl_history_result *out)
{
    *out = (struct cl_history_result){.verdict = CL_HISTORY_RIGHT};
    if (!n)
        return out->verdict;
    if (!make_room(h, n))
        return out->verdict = CL_HISTORY_UNDECIDED;
    for (uint64_t i = 0; i < n; i++)
        h->sorted[i] = &ops[i];
    qsort(h->sorted, n, sizeof(*h->sorted), by_key_and_time);
    for (uint64_t i = 0, end; i < n && out->verdict == CL_HISTORY_RIGHT; i = end) {
        for (end = i + 1; end < n && h->sorted[end]->key == h->sorted[i]->key;)
            end++;
        out->verdict = check_key(h, h->sorted + i, (uint32_t)(end - i), ops, out);
        out->keys++;
    }
    return out->verdict;
}
