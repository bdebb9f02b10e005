/* See condition.h. */
#include "condition.h"
#include "date.h"

/* Of all headers of a field: whether one of their tags is ours, or "*". weak: a mark of weakness does not matter
 * (section 8.8.3.2). */
static bool has_tag(const struct cl_http_request *r, enum cl_http_field field, struct cl_http_text etag, bool weak)
{
    for (unsigned i = 0; i < r->n; i++) {
        struct cl_http_text list = cl_http_value_of(r, i), tag;
        if (r->field[i] != field)
            continue;
        if (cl_http_is(list, CL_HTTP_TEXT("*")))
            return true;
        while (cl_http_next_of(&list, &tag)) {
            if (weak && tag.len > 2 && tag.at[0] == 'W' && tag.at[1] == '/')
                tag = (struct cl_http_text){tag.at + 2, tag.len - 2};
            if (cl_http_is(tag, etag))
                return true;
        }
    }
    return false;
}

/* The date of a field that is there once and says one. */
static bool date_of(const struct cl_http_request *r, enum cl_http_field field, int64_t *seconds)
{
    return r->times[field] == 1 && cl_http_date_read(cl_http_value(r, field), seconds);
}

/* In the order of section 13.2.2. */
int cl_http_condition(const struct cl_http_request *r, const struct cl_http_validators *v)
{
    bool reads = r->method == CL_HTTP_GET || r->method == CL_HTTP_HEAD;
    int64_t at;
    if (r->times[CL_HTTP_IF_MATCH]) {
        if (!has_tag(r, CL_HTTP_IF_MATCH, v->etag, false))
            return 412;
    } else if (date_of(r, CL_HTTP_IF_UNMODIFIED_SINCE, &at) && v->modified_s > at) {
        return 412;
    }
    if (r->times[CL_HTTP_IF_NONE_MATCH]) {
        if (has_tag(r, CL_HTTP_IF_NONE_MATCH, v->etag, true))
            return reads ? 304 : 412;
    } else if (reads && date_of(r, CL_HTTP_IF_MODIFIED_SINCE, &at) && v->modified_s <= at) {
        return 304;
    }
    return 0;
}

/* Whether If-Range lets the range count: our tag, or our date exactly (section 13.1.5). */
static bool range_counts(const struct cl_http_request *r, const struct cl_http_validators *v)
{
    struct cl_http_text text = cl_http_value(r, CL_HTTP_IF_RANGE);
    int64_t at;
    if (r->times[CL_HTTP_IF_RANGE] == 0)
        return true;
    if (r->times[CL_HTTP_IF_RANGE] > 1)
        return false;
    return cl_http_is(text, v->etag) || (cl_http_date_read(text, &at) && at == v->modified_s);
}

/* Digits at the beginning of a text, which loses them; a number that is too large is UINT64_MAX. False: there are
 * none. */
static bool take_number(struct cl_http_text *text, uint64_t *number)
{
    uint32_t n = 0;
    bool too_large = false;
    *number = 0;
    for (; n < text->len && text->at[n] >= '0' && text->at[n] <= '9'; n++)
        too_large |= __builtin_mul_overflow(*number, 10, number) ||
                     __builtin_add_overflow(*number, (uint64_t)(text->at[n] - '0'), number);
    if (too_large)
        *number = UINT64_MAX;
    text->at += n;
    text->len -= n;
    return n != 0;
}

/* One range of a list. 1: it exists, 0: it does not, -1: it is none. */
static int read_range(struct cl_http_text text, uint64_t size, struct cl_http_range *out)
{
    uint64_t first, last = size - 1;
    if (text.len && text.at[0] == '-') { /* the last bytes */
        text.at++;
        text.len--;
        if (!take_number(&text, &last) || text.len)
            return -1;
        if (size == 0 && last) /* the end of nothing exists (section 14.1.2), and no Content-Range can say it */
            return -1;
        uint64_t len = cl_min(last, size);
        *out = (struct cl_http_range){size - len, len};
        return len != 0;
    }
    if (!take_number(&text, &first) || !text.len || text.at[0] != '-')
        return -1;
    text.at++;
    text.len--;
    if (text.len && (!take_number(&text, &last) || text.len || last < first))
        return -1;
    if (first >= size)
        return 0;
    *out = (struct cl_http_range){first, cl_min(last, size - 1) - first + 1};
    return 1;
}

int cl_http_ranges(const struct cl_http_request *r, const struct cl_http_validators *v, uint64_t size,
                   struct cl_http_range out[CL_HTTP_RANGES])
{
    struct cl_http_text list = cl_http_value(r, CL_HTTP_RANGE), one;
    struct cl_http_range range;
    uint64_t sum = 0;
    int n = 0, asked = 0;
    if (r->method != CL_HTTP_GET || r->times[CL_HTTP_RANGE] != 1 || !range_counts(r, v))
        return 0;
    if (list.len < 6 || !cl_http_is_any_case((struct cl_http_text){list.at, 6}, CL_HTTP_TEXT("bytes=")))
        return 0;
    list.at += 6;
    list.len -= 6;
    for (; cl_http_next_of(&list, &one); asked++) {
        int found = read_range(one, size, &range);
        if (found < 0 || (found && n == CL_HTTP_RANGES))
            return 0;
        if (!found)
            continue;
        sum += range.len;
        out[n++] = range;
    }
    if (!asked || (n > 1 && sum > size))
        return 0;
    return n ? n : -1;
}
