/* See types.h. The names are IANA's, of what browsers load. */
#include "types.h"
#include "text.h"

#define MOST 12 /* characters of an end */

static const struct {
    const char *end, *type;
} types[] = {
    {"avif", "image/avif"},
    {"bmp", "image/bmp"},
    {"css", "text/css; charset=utf-8"},
    {"csv", "text/csv; charset=utf-8"},
    {"eot", "application/vnd.ms-fontobject"},
    {"flac", "audio/flac"},
    {"gif", "image/gif"},
    {"gz", "application/gzip"},
    {"htm", "text/html; charset=utf-8"},
    {"html", "text/html; charset=utf-8"},
    {"ico", "image/vnd.microsoft.icon"},
    {"jpeg", "image/jpeg"},
    {"jpg", "image/jpeg"},
    {"js", "text/javascript; charset=utf-8"},
    {"json", "application/json"},
    {"map", "application/json"},
    {"md", "text/markdown; charset=utf-8"},
    {"mjs", "text/javascript; charset=utf-8"},
    {"mp3", "audio/mpeg"},
    {"mp4", "video/mp4"},
    {"ogg", "audio/ogg"},
    {"otf", "font/otf"},
    {"pdf", "application/pdf"},
    {"png", "image/png"},
    {"svg", "image/svg+xml"},
    {"tar", "application/x-tar"},
    {"ttf", "font/ttf"},
    {"txt", "text/plain; charset=utf-8"},
    {"wasm", "application/wasm"},
    {"wav", "audio/wav"},
    {"webm", "video/webm"},
    {"webmanifest", "application/manifest+json"},
    {"webp", "image/webp"},
    {"woff", "font/woff"},
    {"woff2", "font/woff2"},
    {"xhtml", "application/xhtml+xml"},
    {"xml", "application/xml"},
    {"zip", "application/zip"},
};

const char *cl_http_type_of(const char *path)
{
    const char *dot = strrchr(path, '.');
    if (dot && !strchr(dot, '/')) {
        struct cl_http_text end = {dot + 1, (uint32_t)strlen(dot + 1)};
        for (unsigned i = 0; i < sizeof types / sizeof *types && end.len <= MOST; i++)
            if (cl_http_is_any_case(end, (struct cl_http_text){types[i].end, (uint32_t)strlen(types[i].end)}))
                return types[i].type;
    }
    return "application/octet-stream";
}
