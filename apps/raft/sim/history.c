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
    uint32_t bit;  /* among the unknown ones, from 1 on; 0: its outcome is known */
    uint32_t twin; /* the unknown one before it that does the same; 0: none */
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

/* A place in the memory: the known operations carried out and the state, hashed, and the first of its sets in `sets`;
 * 0: free. */
struct place {
    struct pair hash;
    uint64_t first;
};

struct cl_history {
    uint64_t max_configurations, max_bytes;
    struct place *memo; /* open addressing */
    uint64_t room, used;
    uint64_t *sets; /* of unknown operations, from 1 on: the place's next one, then a bit for each carried out */
    uint64_t sets_used, sets_room;
    const struct cl_history_op **sorted;
    struct item *items; /* of one key, 1..n; 0 is the list's head */
    struct step *steps;
    uint32_t *candidates;
    uint64_t *chosen; /* the set of unknown operations carried out */
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
    h->sets_room = MEMO_FIRST;
    h->memo = calloc(h->room, sizeof(*h->memo));
    h->sets = malloc(h->sets_room * sizeof(*h->sets));
    if (!h->memo || !h->sets) {
        cl_history_delete(h);
        return NULL;
    }
    return h;
}

void cl_history_delete(struct cl_history *h)
{
    if (!h)
        return;
    free(h->memo);
    free(h->sets);
    free(h->sorted);
    free(h->items);
    free(h->steps);
    free(h->candidates);
    free(h->chosen);
    free(h);
}

static struct place *find_place(struct place *memo, uint64_t room, struct pair p)
{
    uint64_t i = p.a & (room - 1);
    while (memo[i].first && (memo[i].hash.a != p.a || memo[i].hash.b != p.b))
        i = (i + 1) & (room - 1);
    return &memo[i];
}

static bool grow_memo(struct cl_history *h)
{
    uint64_t room = h->room * 2;
    struct place *memo = room * sizeof(*memo) + h->sets_room * 8 > h->max_bytes ? NULL : calloc(room, sizeof(*memo));
    if (!memo)
        return false;
    for (uint64_t i = 0; i < h->room; i++)
        if (h->memo[i].first)
            *find_place(memo, room, h->memo[i].hash) = h->memo[i];
    free(h->memo);
    h->memo = memo;
    h->room = room;
    return true;
}

static bool grow_sets(struct cl_history *h)
{
    uint64_t room = h->sets_room * 2;
    uint64_t *sets = room * 8 + h->room * sizeof(*h->memo) > h->max_bytes ? NULL : realloc(h->sets, room * 8);
    if (!sets)
        return false;
    h->sets = sets;
    h->sets_room = room;
    return true;
}

static bool within(const uint64_t *inner, const uint64_t *outer, uint32_t words)
{
    for (uint32_t i = 0; i < words; i++)
        if (inner[i] & ~outer[i])
            return false;
    return true;
}

/* Remember a configuration: 1 if it is new, 0 if one that can do all that this can is known, -1 if there is no room for
 * it. */
static int remember(struct cl_history *h, struct pair p, const uint64_t *set, uint32_t words)
{
    if (h->used * 4 >= h->room * 3 && !grow_memo(h))
        return -1;
    struct place *place = find_place(h->memo, h->room, p);
    for (uint64_t at = place->first; at; at = h->sets[at])
        if (within(&h->sets[at + 1], set, words))
            return 0;
    while (h->sets_used + 1 + words > h->sets_room)
        if (!grow_sets(h))
            return -1;
    h->sets[h->sets_used] = place->first;
    memcpy(&h->sets[h->sets_used + 1], set, words * sizeof(*set));
    h->used += !place->first;
    *place = (struct place){p, h->sets_used};
    h->sets_used += 1 + words;
    return 1;
}

static void forget(struct cl_history *h)
{
    if (h->used)
        memset(h->memo, 0, h->room * sizeof(*h->memo));
    h->used = 0;
    h->sets_used = 1;
}

/* The search over one key. */
struct search {
    struct cl_history *h;
    uint32_t n, known, known_left;
    uint64_t state;
    struct pair set;  /* exclusive or of the hashes of what has been carried out of known outcome */
    uint32_t words;   /* of h->chosen: what has been carried out of unknown outcome */
    uint32_t depth;   /* steps made */
    uint64_t deepest; /* most known operations carried out */
    const struct cl_history_op *stuck;
};

/* Item i has been carried out, or has not any more. */
static void toggle(struct search *s, uint32_t i, bool done)
{
    uint32_t bit = s->h->items[i].bit;
    if (bit) {
        s->h->chosen[bit / 64] ^= 1ull << bit % 64;
        return;
    }
    s->known_left += done ? -1u : 1;
    s->set.a ^= mix(2 * (uint64_t)i);
    s->set.b ^= mix(~(uint64_t)i);
}

static void lift(struct search *s, uint32_t i)
{
    struct item *items = s->h->items, *it = &items[i];
    items[it->before].after = it->after;
    items[it->after].before = it->before;
    toggle(s, i, true);
}

static void put_back(struct search *s, uint32_t i)
{
    struct item *items = s->h->items, *it = &items[i];
    items[it->before].after = i;
    items[it->after].before = i;
    toggle(s, i, false);
}

/* The state after an operation; `unknown`: of unknown outcome. */
static int remember_state(struct search *s, uint64_t state, bool unknown)
{
    struct pair p = {s->set.a ^ mix(state) ^ unknown, s->set.b ^ mix(state + BASE)};
    return remember(s->h, p, s->h->chosen, s->words);
}

/* What overwrites the state whatever it is. Behind one of unknown outcome it makes that needless, so there is an order
 * without it. */
static bool overwrites(const struct cl_history_op *op)
{
    return op->kind == CL_HISTORY_PUT || (op->kind == CL_HISTORY_DELETE && op->returned == CL_HISTORY_UNKNOWN);
}

/* Of unknown ones that do the same, those invoked first are carried out first: they may be whenever the others may. */
static bool has_turn(const struct search *s, const struct item *it)
{
    uint32_t bit = it->twin ? s->h->items[it->twin].bit : 0;
    return !bit || s->h->chosen[bit / 64] >> bit % 64 & 1;
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
        if (!has_turn(s, &items[i]))
            continue;
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
    bool after_unknown = s->depth && h->items[h->steps[s->depth - 1].item].bit;
    if (n && (!s->stuck || done > s->deepest)) {
        s->deepest = done;
        s->stuck = h->items[h->candidates[0]].op;
    }
    for (uint32_t c = from; c < n; c++) {
        uint32_t item = h->candidates[c];
        uint64_t next;
        const struct cl_history_op *op = h->items[item].op;
        if ((after_unknown && overwrites(op)) || !cl_history_apply(op, s->state, &next))
            continue;
        lift(s, item);
        int fresh = remember_state(s, next, h->items[item].bit);
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
    remember_state(s, s->state, false);
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

static bool same_effect(const struct cl_history_op *a, const struct cl_history_op *b)
{
    return a->kind == b->kind && a->input == b->input && a->other == b->other && a->flags == b->flags;
}

/* The list of what matters. Unknown ones that do the same are linked as twins. */
static void make_list(struct search *s, const struct cl_history_op **ops, uint32_t n)
{
    struct item *items = s->h->items;
    uint32_t unknown = 0, last = 0; /* how many; the last one, from which `after` leads back for now */
    for (uint32_t i = 0; i < n; i++) {
        if (!matters(ops[i]))
            continue;
        struct item *it = &items[++s->n];
        *it = (struct item){.op = ops[i]};
        if (ops[i]->returned != CL_HISTORY_UNKNOWN) {
            s->known_left++;
            continue;
        }
        it->bit = ++unknown;
        it->after = last;
        for (uint32_t j = last; j && !it->twin; j = items[j].after)
            it->twin = same_effect(items[j].op, ops[i]) ? j : 0;
        last = s->n;
    }
    for (uint32_t i = 1; i <= s->n; i++) {
        items[i].before = i - 1;
        items[i].after = i < s->n ? i + 1 : 0;
    }
    items[0].after = s->n ? 1 : 0;
    items[0].before = s->n;
    s->known = s->known_left;
    s->words = unknown ? unknown / 64 + 1 : 0;
    memset(s->h->chosen, 0, s->words * sizeof(*s->h->chosen));
}

static int check_key(struct cl_history *h, const struct cl_history_op **ops, uint32_t n,
                     const struct cl_history_op *all, struct cl_history_result *out)
{
    struct search s = {.h = h, .state = CL_HISTORY_ABSENT};
    make_list(&s, ops, n);
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
    free(h->chosen);
    h->n_room = 0;
    h->sorted = malloc(n * sizeof(*h->sorted));
    h->items = malloc((n + 1) * sizeof(*h->items));
    h->steps = malloc(n * sizeof(*h->steps));
    h->candidates = malloc(n * sizeof(*h->candidates));
    h->chosen = malloc((n / 64 + 1) * sizeof(*h->chosen));
    if (!h->sorted || !h->items || !h->steps || !h->candidates || !h->chosen)
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
