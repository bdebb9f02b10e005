/* See date.h. */
#include "date.h"

#include <time.h>

#define DAY_S 86400

static const char days[] = "ThuFriSatSunMonTueWed"; /* 1970 began on a Thursday */
static const char months[] = "JanFebMarAprMayJunJulAugSepOctNovDec";

static void two_digits(char *to, int n)
{
    to[0] = (char)('0' + n / 10);
    to[1] = (char)('0' + n % 10);
}

void cl_http_date_write(char *to, int64_t seconds)
{
    struct tm tm;
    time_t t = (time_t)cl_max(seconds, (int64_t)0);
    gmtime_r(&t, &tm);
    int year = tm.tm_year + 1900;
    memcpy(to, "Thu, 01 Jan 1970 00:00:00 GMT", CL_HTTP_DATE_BYTES);
    memcpy(to, days + t / DAY_S % 7 * 3, 3);
    two_digits(to + 5, tm.tm_mday);
    memcpy(to + 8, months + tm.tm_mon * 3, 3);
    two_digits(to + 12, year / 100);
    two_digits(to + 14, year % 100);
    two_digits(to + 17, tm.tm_hour);
    two_digits(to + 20, tm.tm_min);
    two_digits(to + 23, tm.tm_sec);
}

static int month_of(const char *name)
{
    for (int i = 0; i < 12; i++)
        if (memcmp(name, months + 3 * i, 3) == 0)
            return i;
    return -1;
}

/* The year of two digits that is not more than 50 years ahead. */
static int full_year(int year)
{
    time_t now = time(NULL);
    struct tm tm;
    gmtime_r(&now, &tm);
    year += (tm.tm_year + 1900) / 100 * 100;
    return year > tm.tm_year + 1950 ? year - 100 : year;
}

/* Whether a text has a form, in which 0 stands for a digit, _ for a digit or a space, a for a letter. */
static bool has_form(struct cl_http_text text, const char *form)
{
    if (text.len != strlen(form))
        return false;
    for (uint32_t i = 0; i < text.len; i++) {
        char c = text.at[i], lower = cl_http_lower(c);
        bool digit = c >= '0' && c <= '9';
        bool right = form[i] == '0'   ? digit
                     : form[i] == '_' ? digit || c == ' '
                     : form[i] == 'a' ? lower >= 'a' && lower <= 'z'
                                      : c == form[i];
        if (!right)
            return false;
    }
    return true;
}

static int number(const char *at, int digits)
{
    int n = 0;
    for (int i = 0; i < digits; i++)
        n = 10 * n + (at[i] == ' ' ? 0 : at[i] - '0');
    return n;
}

/* The three forms of RFC 9110, section 5.6.7. The day of the week may be any. */
bool cl_http_date_read(struct cl_http_text text, int64_t *seconds)
{
    const char *comma = memchr(text.at, ',', text.len), *end = text.at + text.len, *at, *month, *clock;
    struct tm tm = {0};
    if (comma && has_form((struct cl_http_text){comma, (uint32_t)(end - comma)}, ", 00 aaa 0000 00:00:00 GMT")) {
        at = comma + 2;
        month = at + 3;
        tm.tm_year = number(at + 7, 4);
        clock = at + 12;
    } else if (comma && has_form((struct cl_http_text){comma, (uint32_t)(end - comma)}, ", 00-aaa-00 00:00:00 GMT")) {
        at = comma + 2;
        month = at + 3;
        tm.tm_year = full_year(number(at + 7, 2));
        clock = at + 10;
    } else if (has_form(text, "aaa aaa _0 00:00:00 0000")) {
        month = text.at + 4;
        at = text.at + 8;
        clock = at + 3;
        tm.tm_year = number(at + 12, 4);
    } else {
        return false;
    }
    int day = number(at, 2), hour = number(clock, 2), minute = number(clock + 3, 2), second = number(clock + 6, 2);
    tm.tm_year -= 1900;
    tm.tm_mon = month_of(month);
    tm.tm_mday = day;
    if (tm.tm_mon < 0 || hour > 23 || minute > 59 || second > 60)
        return false;
    *seconds = (int64_t)timegm(&tm) + 3600 * hour + 60 * minute + second;
    return day && tm.tm_mday == day; /* of a month that is not so long it is another one */
}
