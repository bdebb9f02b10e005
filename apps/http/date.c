/* See date.h. */
#include "date.h"

#include <stdio.h>
#include <time.h>

#define DAY_S 86400
#define TEXT_MOST 40 /* the longest form has 33 */

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

bool cl_http_date_read(struct cl_http_text text, int64_t *seconds)
{
    char s[TEXT_MOST + 1], month[4], rest[4];
    struct tm tm = {0};
    int end = 0;
    if (text.len > TEXT_MOST || memchr(text.at, 0, text.len))
        return false;
    memcpy(s, text.at, text.len);
    s[text.len] = 0;
    if (sscanf(s, "%*3[A-Za-z], %2d %3[A-Za-z] %4d %2d:%2d:%2d %3s%n", &tm.tm_mday, month, &tm.tm_year, &tm.tm_hour,
               &tm.tm_min, &tm.tm_sec, rest, &end) == 7) {
    } else if (sscanf(s, "%*[A-Za-z], %2d-%3[A-Za-z]-%2d %2d:%2d:%2d %3s%n", &tm.tm_mday, month, &tm.tm_year,
                      &tm.tm_hour, &tm.tm_min, &tm.tm_sec, rest, &end) == 7) {
        tm.tm_year = full_year(tm.tm_year);
    } else if (sscanf(s, "%*3[A-Za-z] %3[A-Za-z] %2d %2d:%2d:%2d %4d%n", month, &tm.tm_mday, &tm.tm_hour, &tm.tm_min,
                      &tm.tm_sec, &tm.tm_year, &end) == 6) {
        memcpy(rest, "GMT", 4);
    } else {
        return false;
    }
    tm.tm_mon = strlen(month) == 3 ? month_of(month) : -1;
    if ((uint32_t)end != text.len || strcmp(rest, "GMT") != 0 || tm.tm_mon < 0 || tm.tm_year < 1970 || tm.tm_mday < 1 ||
        tm.tm_mday > 31 || tm.tm_hour < 0 || tm.tm_hour > 23 || tm.tm_min < 0 || tm.tm_min > 59 || tm.tm_sec < 0 ||
        tm.tm_sec > 60)
        return false;
    tm.tm_year -= 1900;
    *seconds = (int64_t)timegm(&tm);
    return true;
}
