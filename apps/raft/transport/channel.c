/* See channel.h. */
#include "channel.h"
#include "../../../libos/storage/crc32c.h"
#include "../core/bytes.h"
#include <errno.h>
#include <stdlib.h>

#define MAGIC 0x54524c43u
#define VERSION 1
#define NUMBERED 1
#define HELLO 2
#define UDP_HEADERS 28 /* IPv4 and UDP, of the MTU */
#define LARGEST 9216
#define ASK_NS (2 * RAFT_RTT_MS) /* between two hellos that ask */
#define BURST 32                 /* sent again at a time */
#define OVERTAKEN 3              /* places, where the network reorders */
#define REORDERS_NS 1000000000ull

void raft_channel_init(struct raft_channel *ch, uint32_t id, uint64_t incarnation, uint32_t mtu)
{
    memset(ch, 0, sizeof(*ch));
    ch->id = id;
    ch->incarnation = ch->random = incarnation;
    ch->buffer_bytes = cl_min(mtu - UDP_HEADERS, (uint32_t)LARGEST);
    ch->piece = ch->buffer_bytes - RAFT_CHANNEL_HEADER;
    ch->next_ns = UINT64_MAX;
}

int raft_channel_add(struct raft_channel *ch, uint32_t id, uint32_t frame_max)
{
    struct raft_channel_peer *p = &ch->peers[ch->n_peers];
    p->id = id;
    p->index = ch->n_peers++;
    p->first = p->next = 1;
    p->pieces.frame_max = frame_max;
    p->pieces.most = RAFT_CHANNEL_PARTIAL;
    p->sent = calloc(RAFT_CHANNEL_WINDOW, sizeof(*p->sent));
    p->buffers = malloc((uint64_t)RAFT_CHANNEL_WINDOW * ch->buffer_bytes);
    p->free = malloc(RAFT_CHANNEL_WINDOW * sizeof(*p->free));
    if (!p->sent || !p->buffers || !p->free)
        return -ENOMEM;
    while (p->n_free < RAFT_CHANNEL_WINDOW) {
        p->free[p->n_free] = (uint16_t)(RAFT_CHANNEL_WINDOW - 1 - p->n_free);
        p->n_free++;
    }
    return 0;
}

void raft_channel_free(struct raft_channel *ch)
{
    for (uint32_t i = 0; i < ch->n_peers; i++) {
        struct raft_channel_peer *p = &ch->peers[i];
        raft_pieces_free(&p->pieces);
        free(p->sent);
        free(p->buffers);
        free(p->free);
    }
}

static struct raft_channel_peer *find_peer(struct raft_channel *ch, uint32_t id)
{
    for (uint32_t i = 0; i < ch->n_peers; i++)
        if (ch->peers[i].id == id)
            return &ch->peers[i];
    cl_count(&ch->unknown_peer, 1);
    return NULL;
}

static void due_at(struct raft_channel *ch, uint64_t at_ns)
{
    ch->next_ns = cl_min(ch->next_ns, at_ns);
}

/* Out. */

static bool emit(struct raft_channel *ch, struct raft_channel_peer *p, uint8_t *datagram, uint32_t bytes)
{
    put32(datagram + 4, cl_crc32c(0, datagram + 8, RAFT_CHANNEL_HEADER - 8));
    if (ch->send(ch->arg, p->index, datagram, bytes) < 0) {
        cl_count(&p->count.not_sent, 1);
        return false;
    }
    cl_count(&p->count.datagrams_out, 1);
    return true;
}

static void put_header(const struct raft_channel *ch, struct raft_channel_peer *p, uint8_t *out, uint32_t flags,
                       uint64_t number)
{
    put32(out, MAGIC);
    put32(out + 8, VERSION | flags << 8 | (uint32_t)(number - p->first) << 16);
    put32(out + 12, ch->id);
    put64(out + 16, ch->incarnation);
    put64(out + 24, p->theirs);
    put64(out + 32, number);
    put64(out + 40, p->came.got);
    put64(out + 48, raft_numbers_selective(&p->came, 0));
}

static void put_piece(uint8_t *out, const uint8_t *data, uint32_t bytes, uint32_t i, uint32_t size, uint32_t n)
{
    put32(out + 56, bytes);
    put32(out + 60, i | size << 16);
    memcpy(out + RAFT_CHANNEL_HEADER, data + (uint64_t)i * size, n);
}

/* All that has come was acknowledged. */
static void acknowledged(struct raft_channel_peer *p)
{
    p->unacknowledged = 0;
    p->ack_at_ns = 0;
}

/* A datagram went that acknowledges what its header has bits for. */
static void acknowledged_in_header(struct raft_channel_peer *p)
{
    if (raft_numbers_words(&p->came) <= 1)
        acknowledged(p);
}

static void say_hello(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t to, uint64_t word, uint64_t back)
{
    uint8_t datagram[RAFT_CHANNEL_HEADER] = {0};
    put_header(ch, p, datagram, HELLO, p->first);
    put64(datagram + 24, to);
    put64(datagram + 40, word);
    put64(datagram + 48, back);
    emit(ch, p, datagram, sizeof(datagram));
}

static uint64_t word_for(struct raft_channel *ch, struct raft_channel_peer *p)
{
    while (!p->word) {
        uint64_t z = ch->random += 0x9e3779b97f4a7c15ull;
        z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
        z = (z ^ z >> 27) * 0x94d049bb133111ebull;
        p->word = z ^ z >> 31;
    }
    return p->word;
}

/* Ask who is there, though not with each datagram. */
static void ask(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t to, uint64_t now_ns)
{
    if (p->word && now_ns < p->asked_ns + ASK_NS)
        return;
    p->asked_ns = now_ns;
    say_hello(ch, p, to, word_for(ch, p), 0);
}

static void acknowledge(struct raft_channel *ch, struct raft_channel_peer *p)
{
    uint8_t datagram[RAFT_CHANNEL_HEADER + 8 * RAFT_NUMBERS_WORDS] = {0};
    uint32_t words = cl_max(raft_numbers_words(&p->came), 1u);
    put_header(ch, p, datagram, 0, p->next);
    for (uint32_t k = 1; k < words; k++)
        put64(datagram + RAFT_CHANNEL_HEADER + 8 * (k - 1), raft_numbers_selective(&p->came, k));
    emit(ch, p, datagram, RAFT_CHANNEL_HEADER + 8 * (words - 1));
    acknowledged(p);
}

static struct raft_sent *sent_of(const struct raft_channel_peer *p, uint64_t number)
{
    return &p->sent[number % RAFT_CHANNEL_WINDOW];
}

uint64_t raft_channel_timeout_ns(const struct raft_channel_peer *p)
{
    return raft_rtt_timeout_ns(&p->rtt);
}

/* When the oldest goes again for an acknowledgement, if nothing goes or comes before. */
static uint64_t probe_at(const struct raft_channel_peer *p)
{
    uint64_t ns = raft_rtt_probe_ns(&p->rtt, p->probed);
    bool may = p->first < p->next && p->theirs && !p->silent && ns < raft_channel_timeout_ns(p);
    return may ? p->sent_ns + ns : UINT64_MAX;
}

static void transmit(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t number, uint64_t now_ns)
{
    struct raft_sent *s = sent_of(p, number);
    uint8_t *datagram = p->buffers + (uint64_t)s->buffer * ch->buffer_bytes;
    put_header(ch, p, datagram, NUMBERED, number);
    if (s->times) {
        cl_count(&p->count.retransmitted, 1);
        p->again_until = cl_max(p->again_until, number);
    }
    s->at_ns = p->sent_ns = now_ns;
    s->place = ++p->place;
    s->overtaken = false;
    s->times += s->times < 255;
    if (emit(ch, p, datagram, s->bytes))
        acknowledged_in_header(p);
    due_at(ch, cl_min(now_ns + raft_channel_timeout_ns(p), probe_at(p)));
}

/* Send again what is kept and went before that time, the oldest numbers; the rest when these are acknowledged: it is overtaken then. */
static void send_again(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t before_ns, uint64_t now_ns)
{
    unsigned n = 0;
    for (uint64_t i = p->first; i < p->next && n < BURST; i++) {
        struct raft_sent *s = sent_of(p, i);
        if (!s->kept || s->at_ns >= before_ns)
            continue;
        n++;
        transmit(ch, p, i, now_ns);
    }
}

static bool earlier(uint32_t place, uint32_t other)
{
    return (int32_t)(other - place) > 0;
}

/* Where the network keeps the order, whatever went before what came is lost. */
static bool overtaken(const struct raft_channel_peer *p, const struct raft_sent *s, uint64_t now_ns)
{
    if (!earlier(s->place, p->came_place))
        return false;
    bool keeps_order = now_ns >= p->reorders_until_ns, far = p->came_place - s->place >= OVERTAKEN && s->times == 1;
    return keeps_order || far || now_ns - s->at_ns >= raft_rtt_late_ns(&p->rtt);
}

static void send_overtaken(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns)
{
    unsigned n = 0;
    p->look = false;
    for (uint64_t i = p->first; i < p->next && n < BURST; i++) {
        struct raft_sent *s = sent_of(p, i);
        if (!s->kept)
            continue;
        if (overtaken(p, s, now_ns)) {
            n++;
            transmit(ch, p, i, now_ns);
            s->overtaken = true;
        } else if (i > p->again_until) {
            break; /* those after it went after it */
        }
    }
}

static void forget(struct raft_channel_peer *p, uint64_t number)
{
    struct raft_sent *s = sent_of(p, number);
    if (s->kept)
        p->free[p->n_free++] = s->buffer;
    s->kept = 0;
}

static void forget_all(struct raft_channel_peer *p, uint64_t *counter)
{
    cl_count(counter, RAFT_CHANNEL_WINDOW - p->n_free);
    for (; p->first < p->next; p->first++)
        forget(p, p->first);
    p->silent = 0;
    p->probed = 0;
    p->tried = false;
}

static bool send_numbered(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint32_t bytes,
                          uint64_t now_ns)
{
    uint32_t pieces = cl_max((bytes + ch->piece - 1) / ch->piece, 1u);
    if (p->next - p->first + pieces > RAFT_CHANNEL_WINDOW) {
        cl_count(&p->count.window_full, 1);
        return false;
    }
    for (uint32_t i = 0; i < pieces; i++) {
        uint32_t n = cl_min(ch->piece, bytes - i * ch->piece);
        uint64_t number = p->next++;
        struct raft_sent *s = sent_of(p, number);
        *s =
            (struct raft_sent){.buffer = p->free[--p->n_free], .bytes = (uint16_t)(RAFT_CHANNEL_HEADER + n), .kept = 1};
        put_piece(p->buffers + (uint64_t)s->buffer * ch->buffer_bytes, data, bytes, i, ch->piece, n);
        if (p->theirs)
            transmit(ch, p, number, now_ns);
    }
    if (!p->theirs) {
        ask(ch, p, 0, now_ns);
        due_at(ch, now_ns + raft_channel_timeout_ns(p));
    }
    return true;
}

bool raft_channel_send(struct raft_channel *ch, uint32_t to, const uint8_t *data, uint32_t bytes, bool lasting,
                       uint64_t now_ns)
{
    struct raft_channel_peer *p = find_peer(ch, to);
    if (!p)
        return false;
    if (lasting || bytes > ch->piece) {
        if (!send_numbered(ch, p, data, bytes, now_ns))
            return false;
    } else {
        uint8_t datagram[LARGEST];
        put_header(ch, p, datagram, 0, p->next);
        put_piece(datagram, data, bytes, 0, ch->piece, bytes);
        if (!emit(ch, p, datagram, RAFT_CHANNEL_HEADER + bytes))
            return false;
        acknowledged_in_header(p);
    }
    cl_count(&p->count.frames_out, 1);
    return true;
}

/* In. */

/* What an acknowledgement tells. */
struct news {
    uint64_t sent_ns; /* of the newest that came and went only once; 0: there is none */
    uint32_t place;   /* the latest that is known to have come */
    bool reordered;
};

static void settle(struct raft_channel_peer *p, uint64_t number, uint64_t now_ns, struct news *news)
{
    const struct raft_sent *s = sent_of(p, number);
    if (!s->kept)
        return;
    forget(p, number);
    p->silent = p->probed = 0;
    p->look = true;
    /* Of one that went again it is the last sending that came, unless that was too short a time ago (RFC 8985, section 6.2). */
    bool last = s->times == 1 || now_ns - s->at_ns >= p->rtt.least_ns / 2;
    news->reordered |= last ? s->times == 1 && earlier(s->place, p->came_place) : s->overtaken;
    if (last && earlier(news->place, s->place))
        news->place = s->place;
    if (s->times == 1)
        news->sent_ns = cl_max(news->sent_ns, s->at_ns);
}

/* Words of bits, from ack + 2 on. */
static void on_ack(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t ack, const uint64_t *words,
                   uint32_t n_words, uint64_t now_ns)
{
    struct news news = {.place = p->came_place};
    uint32_t before = p->n_free, silent = p->silent;
    if (ack >= p->next)
        return;
    for (uint64_t n = p->first; n <= ack; n++)
        settle(p, n, now_ns, &news);
    for (uint32_t k = 0; k < n_words; k++)
        for (uint64_t left = words[k]; left; left &= left - 1) {
            uint64_t n = ack + 2 + 64 * (uint64_t)k + (uint64_t)__builtin_ctzll(left);
            if (n >= p->first && n < p->next)
                settle(p, n, now_ns, &news);
        }
    while (p->first < p->next && !sent_of(p, p->first)->kept)
        p->first++;
    p->came_place = news.place;
    if (news.reordered)
        p->reorders_until_ns = now_ns + REORDERS_NS;
    if (news.sent_ns)
        raft_rtt_sample(&p->rtt, now_ns > news.sent_ns ? now_ns - news.sent_ns : 0);
    if (silent && p->n_free == before && !p->tried) { /* it is there, and has not got what went last */
        p->tried = true;
        send_again(ch, p, now_ns, now_ns);
    }
}

static void adopt(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t theirs, uint64_t now_ns)
{
    if (p->theirs) {
        forget_all(p, &p->count.reset);
        p->first = p->next = 1;
    }
    p->theirs = theirs;
    p->rtt = (struct raft_rtt){0};
    p->silent = p->probed = 0;
    p->came_place = p->place;
    p->again_until = 0;
    p->came = (struct raft_numbers){0};
    raft_pieces_drop_before(&p->pieces, UINT64_MAX);
    acknowledged(p);
    for (uint64_t n = p->first; n < p->next; n++)
        transmit(ch, p, n, now_ns); /* none has gone yet */
}

static void on_hello(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint64_t now_ns)
{
    uint64_t theirs = get64(data + 16), word = get64(data + 40), back = get64(data + 48);
    bool lives = p->word && back == p->word && get64(data + 24) == ch->incarnation;
    bool known = theirs == p->theirs || lives;
    cl_count(&p->count.control, 1);
    /* Before anything numbered goes, which it takes only when it knows us. */
    if (word && !known)
        p->asked_ns = now_ns;
    if (word)
        say_hello(ch, p, theirs, known ? 0 : word_for(ch, p), word);
    if (!lives)
        return;
    p->word = 0;
    if (theirs != p->theirs)
        adopt(ch, p, theirs, now_ns);
}

static void ack_by(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t at_ns)
{
    p->ack_at_ns = p->ack_at_ns ? cl_min(p->ack_at_ns, at_ns) : at_ns;
    due_at(ch, p->ack_at_ns);
}

/* A numbered datagram of the present incarnations. */
static const uint8_t *on_numbered(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t number,
                                  struct raft_piece *piece, uint64_t now_ns)
{
    const uint8_t *frame = NULL;
    if (raft_numbers_has(&p->came, number)) {
        cl_count(&p->count.duplicates, 1);
        ack_by(ch, p, now_ns);
        return NULL;
    }
    int rc = number > p->came.got + RAFT_CHANNEL_WINDOW || piece->index >= number ? -EINVAL : 0;
    piece->frame = number - piece->index;
    if (!rc && !piece->index && piece->n == piece->bytes)
        frame = piece->data; /* the usual case, not copied */
    else if (!rc)
        rc = raft_pieces_enter(&p->pieces, piece, &frame);
    if (rc < 0) {
        cl_count(rc == -ENOBUFS ? &p->count.no_room : &p->count.malformed, 1);
        return NULL;
    }
    raft_numbers_add(&p->came, number);
    cl_count(&p->count.accepted, 1);
    bool soon = ++p->unacknowledged >= RAFT_CHANNEL_ACK_EVERY || p->came.highest > p->came.got;
    ack_by(ch, p, soon ? now_ns : now_ns + RAFT_ACK_DELAY_NS);
    return frame;
}

/* The acknowledgement that a datagram carries, which has more words behind the header if it is nothing else. */
static void on_acknowledgement(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, uint32_t more,
                               uint64_t now_ns)
{
    uint64_t words[RAFT_NUMBERS_WORDS] = {get64(data + 48)};
    uint32_t n = 1 + more;
    for (uint32_t k = 1; k < n; k++)
        words[k] = get64(data + RAFT_CHANNEL_HEADER + 8 * (k - 1));
    on_ack(ch, p, get64(data + 40), words, n, now_ns);
}

/* Whether what is behind the header can be. */
static bool well_formed(const struct raft_piece *piece, bool numbered)
{
    if (numbered)
        return true; /* see on_numbered */
    if (!piece->bytes)
        return piece->n % 8 == 0 && piece->n / 8 < RAFT_NUMBERS_WORDS;
    return !piece->index && piece->n == piece->bytes;
}

static const uint8_t *on_data(struct raft_channel *ch, struct raft_channel_peer *p, const uint8_t *data, int64_t len,
                              uint64_t now_ns, uint32_t *bytes)
{
    uint64_t theirs = get64(data + 16), number = get64(data + 32), kept = get32(data + 8) >> 16;
    bool numbered = data[9] & NUMBERED, present = theirs == p->theirs && get64(data + 24) == ch->incarnation;
    struct raft_piece piece = {.bytes = get32(data + 56),
                               .index = get32(data + 60) & 0xffff,
                               .size = get32(data + 60) >> 16,
                               .data = data + RAFT_CHANNEL_HEADER,
                               .n = (uint32_t)len - RAFT_CHANNEL_HEADER};
    const uint8_t *frame = NULL;
    *bytes = piece.bytes;
    if (theirs != p->theirs)
        ask(ch, p, theirs, now_ns);
    if (!present && numbered) {
        cl_count(&p->count.stale, 1);
        if (theirs == p->theirs)
            ack_by(ch, p, now_ns); /* it does not know this one yet: by this it hears of it */
        return NULL;
    }
    if (kept >= number || number >> 62 || !well_formed(&piece, numbered)) {
        cl_count(&p->count.malformed, 1);
        return NULL;
    }
    if (present) {
        if (raft_numbers_skip(&p->came, number - kept)) /* given up, and all that was begun before with it */
            raft_pieces_drop_before(&p->pieces, number - kept);
        on_acknowledgement(ch, p, data, numbered || piece.bytes ? 0 : piece.n / 8, now_ns);
    }
    if (numbered) {
        frame = on_numbered(ch, p, number, &piece, now_ns);
    } else {
        cl_count(piece.bytes ? &p->count.unnumbered : &p->count.control, 1);
        frame = piece.bytes ? piece.data : NULL;
    }
    cl_count(&p->count.frames_in, frame != NULL);
    return frame;
}

bool raft_channel_is(const uint8_t *data, int64_t len)
{
    return len >= RAFT_CHANNEL_HEADER && get32(data) == MAGIC;
}

const uint8_t *raft_channel_receive(struct raft_channel *ch, const uint8_t *data, int64_t len, uint64_t now_ns,
                                    uint32_t *bytes)
{
    bool good = raft_channel_is(data, len) && data[8] == VERSION && data[9] <= HELLO && get64(data + 16) &&
                cl_crc32c(0, data + 8, RAFT_CHANNEL_HEADER - 8) == get32(data + 4);
    if (!good) {
        cl_count(&ch->malformed, 1);
        return NULL;
    }
    struct raft_channel_peer *p = find_peer(ch, get32(data + 12));
    if (!p)
        return NULL;
    cl_count(&p->count.datagrams_in, 1);
    if (!(data[9] & HELLO))
        return on_data(ch, p, data, len, now_ns, bytes);
    on_hello(ch, p, data, now_ns);
    return NULL;
}

/* Time. */

static uint64_t resend_at(const struct raft_channel_peer *p)
{
    if (p->first == p->next)
        return UINT64_MAX;
    return (p->theirs ? sent_of(p, p->first)->at_ns : p->asked_ns) + raft_channel_timeout_ns(p);
}

static void probe(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns)
{
    cl_count(&p->count.probes, 1);
    p->probed++;
    transmit(ch, p, p->first, now_ns);
}

static void on_timeout(struct raft_channel *ch, struct raft_channel_peer *p, uint64_t now_ns)
{
    uint64_t before_ns = now_ns - raft_channel_timeout_ns(p) + 1;
    cl_count(&p->count.timeouts, 1);
    if (++p->silent > RAFT_CHANNEL_SILENT) {
        forget_all(p, &p->count.given_up);
        return;
    }
    raft_rtt_double(&p->rtt);
    p->tried = false;
    if (p->theirs)
        send_again(ch, p, before_ns, now_ns);
    else
        ask(ch, p, 0, now_ns);
}

uint64_t raft_channel_poll(struct raft_channel *ch, uint64_t now_ns)
{
    ch->next_ns = UINT64_MAX;
    for (uint32_t i = 0; i < ch->n_peers; i++) {
        struct raft_channel_peer *p = &ch->peers[i];
        if (p->look)
            send_overtaken(ch, p, now_ns);
        if (now_ns >= resend_at(p))
            on_timeout(ch, p, now_ns);
        if (now_ns >= probe_at(p))
            probe(ch, p, now_ns);
        if (p->ack_at_ns && now_ns >= p->ack_at_ns)
            acknowledge(ch, p);
        due_at(ch, cl_min(resend_at(p), probe_at(p)));
        due_at(ch, p->ack_at_ns ? p->ack_at_ns : UINT64_MAX);
    }
    return ch->next_ns;
}
